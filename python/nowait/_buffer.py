"""Memory for direct files."""

from __future__ import annotations

import mmap


class AlignedBuffer(mmap.mmap):
    """Zeroed memory that begins at a page. A read or write of a direct file with this memory needs
    no copy.

    The memory is an anonymous mapping, with the buffer protocol and the slices of ``mmap``.
    """

    def __new__(cls, size: int) -> AlignedBuffer:
        return super().__new__(cls, -1, size)

    def __init__(self, size: int) -> None:
        pass
