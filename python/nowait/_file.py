"""Files of bytes."""

from __future__ import annotations

import os
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Union

from ._lend import Loan
from ._nowait import Operation
from ._stream import Stream

if TYPE_CHECKING:
    from typing_extensions import Self

    StrOrBytesPath = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]

CacheMode = Literal["host", "user", "direct"]


class File(Stream):
    """An open file of bytes, made by `open`: positional requests, and a stream.

    **Positional requests** (``read_at``, ``write_at``, ``sync`` and similar) ignore the stream's
    position, and several may be in flight at once. If two requests of one event loop overlap on a
    file and one is a write, they take effect in the order of the calls, except with the cache
    ``direct``; a sync covers the loop's earlier writes. A call returns a request that has begun, or
    that waits behind a limit: await it, or pass it to `asyncio.gather`, for example. If the request
    is cancelled, the engine keeps its memory until the request has ended; a cancelled write may
    have happened, in part or whole.

    **The stream** (``read``, ``readline``, ``write``, ``seek`` and similar, and ``async for``) has
    a position, reads ahead, and buffers written data: positional requests see these data after
    `flush`. A stream belongs to one event loop at a time.
    """

    name: str
    mode: str

    def __init__(
        self,
        path: StrOrBytesPath,
        mode: str = "rb",
        buffering: int = -1,
        *,
        cache: CacheMode | None = None,
        durable: bool = False,
        permissions: int = 0o666,
    ) -> None:
        how = kind(mode)
        if "a" in how and cache == "direct":
            raise ValueError("a direct file cannot be opened for appending: use write_at")
        self.name = os.fsdecode(path)
        self.mode = mode
        self._how = how + ("s" if durable else "")
        self._cache = cache
        self._permissions = permissions
        self._set_up(how, buffering, durable)

    def _open(self) -> Operation[Self]:
        return self.open_at(self.name, self._how, self._cache, self._permissions)

    def lend(self, length: int, offset: int) -> Loan:
        """Lend ``length`` bytes at ``offset``, fewer at the end of the file: for ``async with``.

        The result is a list of read-only ``memoryview``, in order. For a file with the cache
        ``user`` they are pages of the cache, of 4 to 256 KiB each; the first and the last may be
        shorter. If data is not cached, nowait reads it first. For other files, or while a write
        changes a page, the list has one view, of a copy.

        The end of the block releases the views. Until then writes to these pages wait: do not wait
        for such a write inside the block. A part of a view, or an array made of one, that lives
        longer keeps the pages, and causes ``BufferError``.
        """
        return Loan(self, length, offset)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if self.is_open:
            self._save()
            warnings.warn(f"unclosed file {self!r}", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        closed = " closed" if self.closed else ""
        return f"<nowait.File {self.name!r} mode={self.mode!r}{closed}>"


def kind(mode: str) -> str:
    """Return the mode without the letters for bytes or text: ``r``, ``w+`` and so on."""
    kinds = [letter for letter in mode if letter in "rwxa"]
    rest = sorted(letter for letter in mode if letter not in "rwxa")
    if len(kinds) != 1 or rest not in ([], ["+"], ["b"], ["t"], ["+", "b"], ["+", "t"]):
        text = f"mode must be 'r', 'w', 'x' or 'a', perhaps with '+', 'b' or 't', not {mode!r}"
        raise ValueError(text)
    return kinds[0] + ("+" if "+" in mode else "")
