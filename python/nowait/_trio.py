"""A run of trio with the methods of an event loop that the extension module calls. Imported only if
trio runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar

import trio

from ._nowait import Operation

T = TypeVar("T")


class Waiter:
    """Resumes a task, once."""

    __slots__ = ("_task",)

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self._task: trio.lowlevel.Task | None = task

    def __call__(self, _operation: object) -> None:
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def forget(self) -> None:
        """Forget the task: it was cancelled."""
        self._task = None


class Run:
    """The methods of an event loop of asyncio, implemented by trio."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._is_over = False

    def add_reader(self, number: int, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever a descriptor is readable, as long as the run lasts."""
        trio.lowlevel.spawn_system_task(self._watch, number, callback)

    async def _watch(self, number: int, callback: Callable[[], None]) -> None:
        try:
            while True:
                await trio.lowlevel.wait_readable(number)
                callback()
        finally:
            self._is_over = True

    def is_closed(self) -> bool:
        """Return true if nothing watches descriptors any more."""
        return self._is_over

    def call_soon(self, callback: Callable[[T], object], argument: T, *, context: Context) -> None:
        """Call a function of the program soon. A waiter's task is resumed within this call if trio
        runs here."""
        if not isinstance(callback, Waiter):
            self._token.run_sync_soon(context.run, callback, argument)
        elif self._is_here():
            callback(argument)
        else:
            self._token.run_sync_soon(callback, argument)

    def _is_here(self) -> bool:
        # `current_trio_token` fails if trio is a guest and code of its host calls this method.
        try:
            return trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            return False

    def call_exception_handler(self, told: dict[str, Any]) -> None:
        """Log a failure that no task has received: trio has no place for it."""
        logging.getLogger("nowait").error(told["message"], exc_info=told["exception"])

    async def wait(self, operation: Operation[T]) -> T:
        """Wait for the result. Cancelling the wait cancels the operation, if no other task
        waits."""
        if not operation.done():
            await self.wait_for_end(operation, cancels=True)
        return operation.result()

    async def wait_for_end(self, operation: Operation[Any], *, cancels: bool) -> None:
        """Wait until an operation that is in flight is over, with any result."""
        task = trio.lowlevel.current_task()
        waiter = Waiter(task)
        operation.add_done_callback(waiter, context=task.context)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            waiter.forget()
            if cancels:
                operation.leave(waiter)
            else:
                operation.remove_done_callback(waiter)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)


_run: trio.lowlevel.RunVar[Run] = trio.lowlevel.RunVar("nowait")


def running() -> Run:
    """Return the loop of this thread, in which trio runs."""
    try:
        return _run.get()
    except LookupError:
        run = Run()
        _run.set(run)
        return run
