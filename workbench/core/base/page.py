"""Configuration of plotly.js for all figures of the package."""

from typing import Any

# Without the logo, and without the button "Share chart...", which uploads the figure.
CONFIG: dict[str, Any] = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
