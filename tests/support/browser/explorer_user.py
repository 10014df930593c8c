"""What a user does with the explorer in a browser."""

from __future__ import annotations

from playwright.sync_api import Locator, Page

ROWS = "table[aria-label='costs of a round'] tbody tr"
PLACE = """(e, [x, y]) => { const { xaxis, yaxis } = e._fullLayout;
  return [xaxis._offset + xaxis.l2p(x), yaxis._offset + yaxis.l2p(y)]; }"""


class User:
    """What somebody does with the explorer."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def drawn(self, what: str) -> Locator:
        """A figure, once it is drawn, by its title."""
        figure = self.page.locator(f'[role=figure][aria-label*="{what}"] .wb-plot[data-drawn]').first
        figure.wait_for()
        return figure

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name, exact=True).click()

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).locator("visible=true").click()

    def field(self, name: str) -> Locator:
        """A field of a form, by its label."""
        return self.page.locator(".wb-explorer").get_by_label(name, exact=True).locator("visible=true").first

    def costs(self) -> list[str]:
        return self.page.locator(ROWS).all_inner_texts()

    def changed(self, before: list[str]) -> list[str]:
        """The table of costs, once it says something else."""
        self.page.wait_for_function(
            "([rows, before]) => [...document.querySelectorAll(rows)].map(r => r.innerText).join() !== before.join()",
            arg=[ROWS, before],
        )
        return self.costs()

    def slide(self, name: str, value: float) -> None:
        """Move a slider as a finger does: it jumps there and says so."""
        slider = self.page.get_by_label(f"{name}, slider", exact=True).locator("visible=true").first
        slider.evaluate(
            "(e, value) => { e.value = value; e.dispatchEvent(new Event('input', {bubbles: true})); }", value
        )

    def click_in(self, figure: Locator, x: float, y: float) -> None:
        """Click at a place of a figure's axes."""
        left, top = figure.evaluate(PLACE, [x, y])
        figure.click(position={"x": left, "y": top})
