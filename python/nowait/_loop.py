"""The differences between event loops: asyncio and compatible ones, and trio."""

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
    """Return true if trio runs the calling code. trio sets a variable of sniffio, which it depends
    on."""
    sniffio = sys.modules.get("sniffio")
    return sniffio is not None and sniffio.thread_local.name == "trio"


async def let_others_run() -> None:
    """Let the other tasks run."""
    if is_trio():
        import trio

        await trio.lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)


async def end_of(operation: Operation[Any]) -> None:
    """Wait until an operation is over, with any result. If the wait is cancelled, the operation
    continues."""
    # The operation may have begun in another event loop, which is closed by now.
    adopt(operation)
    if operation.done():
        return
    if not is_trio():
        # An operation has the methods of a future that `wait` calls.
        await asyncio.wait([cast("asyncio.Future[Any]", operation)])
        return
    from . import _trio

    await _trio.running().wait_for_end(operation, cancels=False)


def begun(
    coroutine: Coroutine[Any, Any, T], at_end: Callable[[], object] | None = None
) -> Awaitable[T]:
    """Begin a coroutine in a task before the program awaits it. Under trio, which cannot make a
    task here, the coroutine begins when the program awaits it.

    Call `at_end` when the task is over, even if its coroutine never began. Under trio, `at_end` is
    not called.
    """
    if is_trio():
        return coroutine
    task = asyncio.ensure_future(coroutine)
    if at_end is not None:
        task.add_done_callback(lambda _: at_end())
    return task


async def to_its_end(call: Callable[[], Awaitable[T]]) -> T:
    """Await a coroutine that must not be cancelled halfway. Under trio, shield it, because trio
    would cancel each of its steps again."""
    if not is_trio():
        return await call()
    import trio

    with trio.CancelScope(shield=True):
        result = await call()
    return result


async def on_thread(call: Callable[[], T]) -> T:
    """Await a blocking call on one of the loop's threads."""
    if not is_trio():
        return await asyncio.get_running_loop().run_in_executor(None, call)
    import trio

    return await trio.to_thread.run_sync(call)


class Lock:
    """A lock of tasks, granted in the order in which they ask. Taking a free lock does not
    suspend."""

    __slots__ = ("_holder", "_turns")

    def __init__(self) -> None:
        # The number of the process whose task holds the lock; None: the lock is free.
        self._holder: int | None = None
        self._turns: OrderedDict[Operation[None], None] = OrderedDict()

    async def __aenter__(self) -> None:
        if self._holder is None:
            self._holder = _process
            return
        if self._holder != _process:
            # A task of the parent process held the lock at the fork, and does not exist in this
            # child.
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
    """Record the number of the process. Called in a forked child."""
    global _process
    _process = os.getpid()


os.register_at_fork(after_in_child=after_fork)
