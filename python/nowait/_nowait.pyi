"""The extension module, crates/api/python."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextvars import Context
from typing import Any, Generic, Literal, TypeVar

from typing_extensions import Buffer, Self

T = TypeVar("T")

Advice = Literal["normal", "random", "sequential", "willneed", "dontneed"]

class Operation(Generic[T]):
    """A request that was submitted: awaitable, and a future of asyncio."""

    _asyncio_future_blocking: bool
    def __await__(self) -> Generator[Any, None, T]: ...
    def __iter__(self) -> Generator[Any, None, T]: ...
    def get_loop(self) -> asyncio.AbstractEventLoop: ...
    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def result(self) -> T: ...
    def exception(self) -> BaseException | None: ...
    def add_done_callback(
        self, callback: Callable[[Self], object], /, *, context: Context | None = None
    ) -> None: ...
    def remove_done_callback(self, callback: Callable[[Self], object]) -> int: ...
    def cancel(self, msg: object = None) -> bool: ...

class RawFile:
    def __init__(self, *args: object, **options: object) -> None: ...
    def open_at(
        self, path: str, how: str, cache: str | None, permissions: int
    ) -> Operation[Any]: ...
    def read_at(self, length: int, offset: int) -> Operation[bytes]:
        """Read ``length`` bytes at ``offset``; fewer at the end of the file only."""
    def readinto_at(self, buffer: Buffer, offset: int) -> Operation[int]:
        """Read at ``offset`` into the whole of ``buffer``; return how many bytes.

        The buffer cannot be resized before the engine is done with it.
        """
    def write_at(self, data: Buffer, offset: int) -> Operation[int]:
        """Write all of ``data`` at ``offset``; return how many bytes. Leave it as it is meanwhile."""
    def read_many(self, ranges: Iterable[tuple[int, int]]) -> Operation[list[bytes]]:
        """Read many ranges, offset and length each, in one submission."""
    def sync(self) -> Operation[None]:
        """Make data and metadata durable: fsync(2)."""
    def datasync(self) -> Operation[None]:
        """Make the data durable, and what is needed to read them: fdatasync(2)."""
    def sync_range(self, offset: int, length: int = 0) -> Operation[None]:
        """Make ``length`` bytes from ``offset`` on durable; 0: all from there on."""
    def advise(self, advice: Advice, offset: int = 0, length: int = 0) -> Operation[None]:
        """Say how a part of the file will be used; length 0: to the end. A hint."""
    def size(self) -> Operation[int]:
        """Return the size in bytes."""
    def resize(self, size: int) -> Operation[int]: ...
    def close_at(self) -> Operation[None]: ...
    def fileno(self) -> int:
        """Return the number of the descriptor, which is open as long as the file is."""
    @property
    def closed(self) -> bool: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def alignment(self) -> tuple[int, int] | None:
        """What divides offset and length, and the address, of direct requests."""

def read_whole(path: str) -> Operation[bytes]: ...
def write_whole(path: str, data: Buffer, atomic: bool) -> Operation[int]: ...
def copy_whole(source: str, destination: str) -> Operation[int]: ...
def after_fork() -> None: ...
def shut_down() -> None: ...
def backend() -> tuple[str, str, str]: ...
