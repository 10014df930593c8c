"""Links: the time that a message takes.

t = latency + bytes / bandwidth (Hockney). The latency is the time on the wire. The transfer occupies the receiver's
port, which takes one message at a time (paper 1, section III-C), while the receiver can compute.
"""

from __future__ import annotations

from typing import Self

from pydantic import PrivateAttr

from workbench.core.base.settings import Settings, setting

BYTES_PER_FLOAT = 8


class Link(Settings):
    """Link between each pair of nodes: latency and bandwidth.

    >>> Link(latency=0.001, bandwidth=8e5).transfer(5000)  # seconds on the port for 5000 float64
    0.05
    """

    latency: float = setting(0.0, "time that a message spends on the wire before its transfer", "s", ge=0)
    bandwidth: float | None = setting(
        None, "rate at which a receiver's port takes messages in; empty = infinite", "bytes/s", gt=0
    )
    downloads: bool = setting(
        False, "count the time that models take to the workers too (the papers ignore it)"
    )

    _width: int = PrivateAttr(BYTES_PER_FLOAT)

    def carrying(self, width: int) -> Self:
        """Return the link for floats of `width` bytes each, such as 4 for float32.

        >>> Link(bandwidth=8e5).carrying(4).transfer(5000)
        0.025
        """
        link = self.model_copy()
        link._width = width
        return link

    def free(self) -> Self:
        """Return a link without latency and transfer times, for messages that take real time.

        >>> Link(latency=0.1, bandwidth=8e5).free().transfer(5000)
        0.0
        """
        return type(self)().carrying(self._width)

    @property
    def width(self) -> int:
        """Bytes of one float in a message."""
        return self._width

    def transfer(self, floats: float) -> float:
        """Return the seconds for which a message of that many floats occupies the receiver's port."""
        return 0.0 if self.bandwidth is None else self.width * floats / self.bandwidth
