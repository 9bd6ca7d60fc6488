"""Calls on threads, and the base of awaitable opens."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Methods of a file that are not called on a thread.
DIRECT = {"detach", "fileno", "readable"}


def wrap(func: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """Make a coroutine function of a blocking function. The coroutine calls the blocking function
    on a thread."""

    @functools.wraps(func)
    async def run(
        *args: Any,
        loop: asyncio.AbstractEventLoop | None = None,
        executor: Executor | None = None,
        **kwargs: Any,
    ) -> T:
        loop = loop or asyncio.get_running_loop()
        return await loop.run_in_executor(executor, functools.partial(func, *args, **kwargs))

    return run


class AsyncBase:
    """A file of `io`, or one like it: its methods are called on threads."""

    def __init__(
        self, file: Any, loop: asyncio.AbstractEventLoop | None, executor: Executor | None
    ) -> None:
        self._file = file
        self._ref_loop = loop
        self._executor = executor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_file":
            raise AttributeError(name)
        value = getattr(self._file, name)
        if name in DIRECT or not callable(value):
            return value
        return functools.partial(wrap(value), loop=self._ref_loop, executor=self._executor)

    def __aiter__(self) -> AsyncBase:
        return self

    async def __anext__(self) -> Any:
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def __aexit__(self, *error: Any) -> None:
        await wrap(self._file.__exit__)(*error, loop=self._ref_loop, executor=self._executor)

    def __repr__(self) -> str:
        return f"{super().__repr__()} wrapping {self._file!r}"


class AsyncIndirectBase(AsyncBase):
    """A file that is looked up for each call, as ``sys.stdout`` is."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop | None,
        executor: Executor | None,
        indirect: Callable[[], Any],
    ) -> None:
        self._indirect = indirect
        self._name = name
        super().__init__(None, loop, executor)

    @property
    def _file(self) -> Any:
        return self._indirect()

    @_file.setter
    def _file(self, file: Any) -> None:
        pass


class AiofilesContextManager(Generic[T]):
    """A file about to be opened: ``await`` it, or use it in ``async with``."""

    __slots__ = ("_coro", "_obj")

    def __init__(self, coro: Awaitable[T]) -> None:
        self._coro = coro
        self._obj: Any = None

    def __await__(self) -> Generator[Any, Any, T]:
        if self._obj is None:
            self._obj = yield from self._coro.__await__()
        opened: T = self._obj
        return opened

    async def __aenter__(self) -> T:
        return await self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._obj.__aexit__(exc_type, exc, traceback)
        self._obj = None
