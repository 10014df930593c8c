"""Configuration of plotly.js for all figures of the package."""

from typing import Any

# No logo, and no button "Share chart...", which uploads the figure.
CONFIG: dict[str, Any] = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": ""}
