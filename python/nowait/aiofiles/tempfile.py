"""Temporary files and folders: those of ``tempfile``, each call on a thread."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from .base import AiofilesContextManager, AsyncBase, wrap

__all__ = [
    "NamedTemporaryFile",
    "SpooledTemporaryFile",
    "TemporaryDirectory",
    "TemporaryFile",
]


def _opens(make: Callable[..., Any]) -> Callable[..., AiofilesContextManager[Any]]:
    async def call(
        *args: Any,
        loop: asyncio.AbstractEventLoop | None = None,
        executor: Executor | None = None,
        **kwargs: Any,
    ) -> AsyncBase:
        made = await wrap(make)(*args, loop=loop, executor=executor, **kwargs)
        return AsyncBase(made, loop, executor)

    def opens(*args: Any, **kwargs: Any) -> AiofilesContextManager[Any]:
        return AiofilesContextManager(call(*args, **kwargs))

    opens.__doc__ = make.__doc__
    return opens


class AsyncTemporaryDirectory(AsyncBase):
    """A folder that is removed with its content."""

    async def close(self) -> None:
        """Remove the folder."""
        await self.cleanup()


class AiofilesContextManagerTempDir(AiofilesContextManager[Any]):
    """A folder about to be made; ``async with`` returns its path."""

    __slots__ = ()

    async def __aenter__(self) -> str:
        name: str = (await self).name
        return name


NamedTemporaryFile = _opens(tempfile.NamedTemporaryFile)
SpooledTemporaryFile = _opens(tempfile.SpooledTemporaryFile)
TemporaryFile = _opens(tempfile.TemporaryFile)


def TemporaryDirectory(
    suffix: str | None = None,
    prefix: str | None = None,
    dir: Any = None,
    loop: asyncio.AbstractEventLoop | None = None,
    executor: Executor | None = None,
) -> AiofilesContextManagerTempDir:
    """Make a folder, which is removed with its content at the end."""

    async def make() -> AsyncTemporaryDirectory:
        call = wrap(tempfile.TemporaryDirectory)
        made = await call(suffix, prefix, dir, loop=loop, executor=executor)
        return AsyncTemporaryDirectory(made, loop, executor)

    return AiofilesContextManagerTempDir(make())
