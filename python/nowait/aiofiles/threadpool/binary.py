"""Files of bytes, with what aiofiles has to be awaited and nowait has not."""

from __future__ import annotations

from ..._file import File

__all__ = ["AsyncBufferedIOBase", "AsyncBufferedReader", "AsyncFileIO"]


class AsyncFileIO(File):
    """A file that writes at once."""

    @property
    def _file(self) -> File:
        return self

    async def isatty(self) -> bool:  # type: ignore[override]
        """Tell whether it is a terminal."""
        return super().isatty()

    async def seekable(self) -> bool:  # type: ignore[override]
        """Tell whether there is a position."""
        return super().seekable()

    async def writable(self) -> bool:  # type: ignore[override]
        """Tell whether the file was opened for writing."""
        return super().writable()


class AsyncBufferedIOBase(AsyncFileIO):
    """A file that gathers what is written."""

    @property
    def raw(self) -> File:
        """The file itself."""
        return self


class AsyncBufferedReader(AsyncBufferedIOBase):
    """A file that reads ahead, too."""
