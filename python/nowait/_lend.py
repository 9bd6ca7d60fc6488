"""Cached pages, lent in place."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._nowait import LentPart, RawFile


class Loan:
    """For ``async with``: the bytes of a range as read-only views, mostly of the cache itself."""

    def __init__(self, file: RawFile, length: int, offset: int) -> None:
        self._file = file
        self._length = length
        self._offset = offset
        self._parts: list[LentPart] = []
        self._views: list[memoryview] = []

    async def __aenter__(self) -> list[memoryview]:
        parts = self._file.lend_at(self._length, self._offset)
        if parts is None:
            data = await self._file.read_at(self._length, self._offset)
            # The read has normally cached the pages; if they are still missing, lend the copy that
            # it returned.
            parts = self._file.lend_at(self._length, self._offset)
            if parts is None:
                self._views = [memoryview(data)]
                return list(self._views)
        self._parts = parts
        self._views = [memoryview(part) for part in parts]
        return list(self._views)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for view in self._views:
            with contextlib.suppress(BufferError):
                view.release()
        is_used = any(part.is_viewed for part in self._parts)
        self._parts, self._views = [], []
        if is_used and exc is None:
            raise BufferError("views of lent bytes are still in use: release them before the end")
