"""Actions of a user of the explorer in a browser."""

from __future__ import annotations

from playwright.sync_api import Locator, Page

ROWS = "table[aria-label='costs of a round'] tbody tr"
PLACE = """(e, [x, y]) => { const { xaxis, yaxis } = e._fullLayout;
  return [xaxis._offset + xaxis.l2p(x), yaxis._offset + yaxis.l2p(y)]; }"""


class User:
    """A user of the explorer."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def drawn(self, what: str) -> Locator:
        """Return a figure by its title, once it is drawn."""
        figure = self.page.locator(
            f'[role=figure][aria-label*="{what}"] :is(.wb-plot, .wb-forecast)[data-drawn]'
        ).first
        figure.wait_for()
        return figure

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name, exact=True).click()

    def press(self, name: str) -> None:
        self.page.get_by_role("button", name=name, exact=True).locator("visible=true").click()

    def field(self, name: str) -> Locator:
        """Return a field of a form by its label."""
        return self.page.locator(".wb-explorer").get_by_label(name, exact=True).locator("visible=true").first

    def costs(self) -> list[str]:
        return self.page.locator(ROWS).all_inner_texts()

    def changed(self, before: list[str]) -> list[str]:
        """Return the table of costs, once it has changed."""
        self.page.wait_for_function(
            "([rows, before]) => [...document.querySelectorAll(rows)].map(r => r.innerText).join() !== before.join()",
            arg=[ROWS, before],
        )
        return self.costs()

    def slide(self, name: str, value: float) -> None:
        """Set a slider to a value and fire its input event."""
        slider = self.page.get_by_label(f"{name}, slider", exact=True).locator("visible=true").first
        slider.evaluate(
            "(e, value) => { e.value = value; e.dispatchEvent(new Event('input', {bubbles: true})); }", value
        )

    def click_in(self, figure: Locator, x: float, y: float) -> None:
        """Click at a point of a figure, in axis coordinates."""
        left, top = figure.evaluate(PLACE, [x, y])
        figure.click(position={"x": left, "y": top})
