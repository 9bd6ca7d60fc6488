"""A context for caio, by which aiofile reads and writes: it submits its requests to nowait. ::

    import nowait.caio
    nowait.caio.install()                      # for all that aiofile opens from now on

    AIOFile(path, context=nowait.caio.AsyncioContext())     # or for one file

The module needs caio, which aiofile depends on.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import caio
from caio.abstract import AbstractContext, AbstractOperation
from caio.asyncio_base import AsyncioContextBase

from ._file import File

if TYPE_CHECKING:
    from ._nowait import Operation as Request

ACCESS = {os.O_RDONLY: "r", os.O_WRONLY: "u", os.O_RDWR: "r+"}


class Operation(AbstractOperation):
    """A request, like caio's: made by `read`, `write`, `fsync` or `fdsync`, and submitted once."""

    def __init__(
        self, kind: str, fd: int, offset: int = 0, nbytes: int = 0, payload: bytes = b""
    ) -> None:
        if not isinstance(payload, bytes):
            raise ValueError(f"payload_bytes must be bytes, got {payload!r}")
        self._kind = kind
        self._fd = fd
        self._offset = offset
        self._nbytes = nbytes
        self._payload = payload
        self._callback: Callable[[int], Any] | None = None
        self._value: bytes | int | None = None

    @classmethod
    def read(cls, nbytes: int, fd: int, offset: int, priority: int = 0) -> Operation:
        return cls("read", fd, offset, nbytes)

    @classmethod
    def write(cls, payload_bytes: bytes, fd: int, offset: int, priority: int = 0) -> Operation:
        return cls("write", fd, offset, len(payload_bytes), payload_bytes)

    @classmethod
    def fsync(cls, fd: int, priority: int = 0) -> Operation:
        return cls("fsync", fd)

    @classmethod
    def fdsync(cls, fd: int, priority: int = 0) -> Operation:
        return cls("fdsync", fd)

    async def perform(self, file: File) -> None:
        """Run the request on a file, and keep its value."""
        if self._kind == "read":
            self._value = self._payload = await file.read_at(self._nbytes, self._offset)
        elif self._kind == "write":
            self._value = await file.write_at(self._payload, self._offset)
        else:
            await (file.sync() if self._kind == "fsync" else file.datasync())
        if self._callback is not None:
            size = len(self._value) if isinstance(self._value, bytes) else self._value
            self._callback(size or 0)

    # The method returns None before the operation ends, which the type annotations of caio 0.9 do
    # not allow.
    def get_value(self) -> bytes | int | None:  # type: ignore[override,unused-ignore]
        return self._value

    @property
    def fileno(self) -> int:
        return self._fd

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def payload(self) -> bytes:
        return self._payload

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def set_callback(self, callback: Callable[[int], Any]) -> bool:
        if not callable(callback):
            raise ValueError(f"callback must be callable, got {callback!r}")
        self._callback = callback
        return True


# The identity of an open descriptor: the file, and how it was opened.
Identity = tuple[int, int, int]


class Files(AbstractContext):
    """Files of nowait for the descriptors that requests name: this class opens the file of each
    descriptor a second time.

    caio does not report closed descriptors. This class notices a closed descriptor when its number
    names another file, or when the class opens another file.
    """

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        self._files: dict[int, tuple[Identity, File, Request[File]]] = {}

    @property
    def max_requests(self) -> int:
        return self._max_requests

    async def of(self, fd: int) -> File:
        """Return the file for a descriptor."""
        identity = identify(fd)
        known = self._files.get(fd)
        if known is None or known[0] != identity:
            self._forget_closed()
            known = self._files[fd] = (identity, *reopen(fd, identity[2]))
        _, file, opening = known
        if not file.is_open:
            try:
                # Another task may wait for the same open.
                await asyncio.shield(opening)
            except OSError:
                self._files.pop(fd, None)
                raise
        return file

    def _forget_closed(self) -> None:
        for fd, (identity, file, opening) in list(self._files.items()):
            try:
                is_known = identify(fd) == identity
            except OSError:
                is_known = False
            if not is_known and opening.done():
                del self._files[fd]
                file.abandon()

    def close(self) -> None:
        """Close the files opened here. Requests in flight continue."""
        for _, file, opening in self._files.values():
            if not opening.cancel():
                file.abandon()
        self._files.clear()


def identify(fd: int) -> Identity:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino, fcntl.fcntl(fd, fcntl.F_GETFL)


def reopen(fd: int, flags: int) -> tuple[File, Request[File]]:
    """Open the file of a descriptor again, in the same way."""
    how = ACCESS[flags & os.O_ACCMODE]
    if flags & os.O_APPEND:
        how = "a" if how == "u" else "a+"
    if flags & os.O_DSYNC:
        how += "s"
    file = File("", "rb")
    cache = "direct" if flags & os.O_DIRECT else "host"
    return file, file.open_at(f"/proc/self/fd/{fd}", how, cache, 0)


class AsyncioContext(AsyncioContextBase):
    """The context to which aiofile submits its requests, in the running event loop."""

    OPERATION_CLASS = Operation
    CONTEXT_CLASS = Files
    context: Files

    async def submit(self, op: AbstractOperation) -> bytes | int | None:
        """Run a request, and return its value."""
        if not isinstance(op, Operation):
            raise ValueError("Operation object expected")
        async with self.semaphore:
            await op.perform(await self.context.of(op.fileno))
        return op.get_value()

    def _destroy_context(self) -> None:
        self.context.close()


def install() -> None:
    """Make aiofile use nowait for all files that it opens from now on, in loops in which it has
    opened no file yet."""
    caio.AsyncioContext = AsyncioContext
