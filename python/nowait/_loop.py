"""What event loops do in different ways: asyncio and its kin, and trio."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ._nowait import Operation, turn

T = TypeVar("T")


def is_trio() -> bool:
    """Tell whether trio runs the code that asks. It says so by sniffio, which it needs."""
    sniffio = sys.modules.get("sniffio")
    return sniffio is not None and sniffio.thread_local.name == "trio"


async def let_others_run() -> None:
    """Give the other tasks their turn."""
    if is_trio():
        import trio

        await trio.lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)


async def end_of(operation: Operation[T]) -> T:
    """Wait for the end of an operation, which goes on if the wait is cancelled."""
    if not is_trio():
        return await asyncio.shield(operation)
    from . import _trio

    return await _trio.running().wait(operation, cancels=False)


def begun(coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
    """Have a coroutine begin before it is awaited, where a task can be made: not under trio."""
    return coroutine if is_trio() else asyncio.ensure_future(coroutine)


async def to_its_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await what trio must not cancel in the middle, as it would each step of it again."""
    if not is_trio():
        return await coroutine
    import trio

    with trio.CancelScope(shield=True):
        result = await coroutine
    return result


async def on_thread(call: Callable[[], T]) -> T:
    """Await a call that may block, on a thread of the loop's."""
    if not is_trio():
        return await asyncio.get_running_loop().run_in_executor(None, call)
    import trio

    return await trio.to_thread.run_sync(call)


class Lock:
    """A lock of tasks, in the order in which they come. To take one that is free never suspends."""

    __slots__ = ("_is_held", "_turns")

    def __init__(self) -> None:
        self._is_held = False
        self._turns: deque[Operation[None]] = deque()

    async def __aenter__(self) -> None:
        if not self._is_held:
            self._is_held = True
            return
        mine = turn()
        self._turns.append(mine)
        try:
            await mine
        except BaseException:
            if mine in self._turns:
                self._turns.remove(mine)
            elif not mine.cancelled():
                self._pass_on()  # it was this task's turn already
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        while self._turns:
            if self._turns.popleft().grant():
                return
        self._is_held = False
