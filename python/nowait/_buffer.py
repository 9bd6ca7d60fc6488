"""Memory for direct files."""

from __future__ import annotations

import mmap


class AlignedBuffer(mmap.mmap):
    """Zeroed memory that begins on a page: direct files read into it, and write from it, without a
    copy.

    The memory is an anonymous mapping, with the buffer protocol and the slices of ``mmap``.
    """

    def __new__(cls, size: int) -> AlignedBuffer:
        return super().__new__(cls, -1, size)

    def __init__(self, size: int) -> None:
        pass
