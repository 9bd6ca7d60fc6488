"""Files of text, with what aiofiles has to be awaited and nowait has not."""

from __future__ import annotations

from ..._text import TextFile

__all__ = ["AsyncTextIOWrapper"]


class AsyncTextIOWrapper(TextFile):
    """A file of text."""

    @property
    def _file(self) -> TextFile:
        return self

    async def isatty(self) -> bool:  # type: ignore[override]
        """Tell whether it is a terminal."""
        return super().isatty()

    async def readable(self) -> bool:  # type: ignore[override]
        """Tell whether the file was opened for reading."""
        return super().readable()

    async def seekable(self) -> bool:  # type: ignore[override]
        """Tell whether there is a position."""
        return super().seekable()

    async def writable(self) -> bool:  # type: ignore[override]
        """Tell whether the file was opened for writing."""
        return super().writable()
