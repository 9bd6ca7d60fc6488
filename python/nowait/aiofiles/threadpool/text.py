"""Files of text, with the methods that are awaited in aiofiles and not in nowait."""

from __future__ import annotations

from ..._text import TextFile

__all__ = ["AsyncTextIOWrapper"]


class AsyncTextIOWrapper(TextFile):
    """A file of text."""

    @property
    def _file(self) -> TextFile:
        return self

    async def isatty(self) -> bool:  # type: ignore[override]
        """Return true if the file is a terminal."""
        return super().isatty()

    async def readable(self) -> bool:  # type: ignore[override]
        """Return true if the file was opened for reading."""
        return super().readable()

    async def seekable(self) -> bool:  # type: ignore[override]
        """Return true if the file has a position."""
        return super().seekable()

    async def writable(self) -> bool:  # type: ignore[override]
        """Return true if the file was opened for writing."""
        return super().writable()
