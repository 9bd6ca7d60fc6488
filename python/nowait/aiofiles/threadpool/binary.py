"""Files of bytes, with the methods that are awaited in aiofiles and not in nowait."""

from __future__ import annotations

from ..._file import File

__all__ = ["AsyncBufferedIOBase", "AsyncBufferedReader", "AsyncFileIO"]


class AsyncFileIO(File):
    """A file that does not buffer written data."""

    @property
    def _file(self) -> File:
        return self

    async def isatty(self) -> bool:  # type: ignore[override]
        """Return true if the file is a terminal."""
        return super().isatty()

    async def seekable(self) -> bool:  # type: ignore[override]
        """Return true if the file has a position."""
        return super().seekable()

    async def writable(self) -> bool:  # type: ignore[override]
        """Return true if the file was opened for writing."""
        return super().writable()


class AsyncBufferedIOBase(AsyncFileIO):
    """A file that gathers written data."""

    @property
    def raw(self) -> File:
        """The file itself."""
        return self


class AsyncBufferedReader(AsyncBufferedIOBase):
    """A file that reads ahead, too."""
