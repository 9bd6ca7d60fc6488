"""What event loops do in different ways: asyncio and its kin, and trio."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from ._nowait import Operation, adopt, turn

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


async def end_of(operation: Operation[Any]) -> None:
    """Wait until an operation is over, however it ends. It goes on if the wait is cancelled."""
    # It may have begun in another event loop, which is closed by now.
    adopt(operation)
    if operation.done():
        return
    if not is_trio():
        # It has all of a future that is asked for here.
        await asyncio.wait([cast("asyncio.Future[Any]", operation)])
        return
    from . import _trio

    await _trio.running().wait_for_end(operation, cancels=False)


def begun(
    coroutine: Coroutine[Any, Any, T], at_end: Callable[[], object] | None = None
) -> Awaitable[T]:
    """Have a coroutine begin before it is awaited, where a task can be made: not under trio.

    `at_end` is called when that task is over, also if its coroutine never began.
    """
    if is_trio():
        return coroutine
    task = asyncio.ensure_future(coroutine)
    if at_end is not None:
        task.add_done_callback(lambda _: at_end())
    return task


async def to_its_end(call: Callable[[], Awaitable[T]]) -> T:
    """Await what trio must not cancel in the middle, as it would each step of it again."""
    if not is_trio():
        return await call()
    import trio

    with trio.CancelScope(shield=True):
        result = await call()
    return result


async def on_thread(call: Callable[[], T]) -> T:
    """Await a call that may block, on a thread of the loop's."""
    if not is_trio():
        return await asyncio.get_running_loop().run_in_executor(None, call)
    import trio

    return await trio.to_thread.run_sync(call)


class Lock:
    """A lock of tasks, in the order in which they come. To take one that is free never suspends."""

    __slots__ = ("_holder", "_turns")

    def __init__(self) -> None:
        # The number of the process whose task holds it.
        self._holder: int | None = None
        self._turns: OrderedDict[Operation[None], None] = OrderedDict()

    async def __aenter__(self) -> None:
        if self._holder is None:
            self._holder = _process
            return
        if self._holder != _process:
            # A task of the parent's, which is not here.
            self._holder = _process
            self._turns.clear()
            return
        mine = turn()
        self._turns[mine] = None
        try:
            await mine
        except BaseException:
            if mine in self._turns:
                del self._turns[mine]
            elif not mine.cancelled():
                self._pass_on()  # it was this task's turn already
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        while self._turns:
            mine, _ = self._turns.popitem(last=False)
            if mine.grant():
                return
        self._holder = None


_process = os.getpid()


def after_fork() -> None:
    """Learn the number of a forked child."""
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=after_fork)
