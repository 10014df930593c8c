"""What a page of ours tells plotly.js, however a figure gets there."""

from typing import Any

# Its button "Share chart..." uploads the figure.
CONFIG: dict[str, Any] = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
