"""Operations: as futures, cancelled, forgotten."""

from __future__ import annotations

import asyncio
import gc
import os
import pathlib
import sys
import threading
import weakref
from typing import Any

import anyio
import nowait
import pytest
from conftest import FULL, LIMIT, Run, drop_cache, gather
from nowait._nowait import turn

MANY = 1_000_000 if FULL else 20_000

# A task of CPython 3.10 does not pass on the message of a cancellation that ended its wait.
TELLS = sys.version_info >= (3, 11)


@pytest.fixture
def path(disk: pathlib.Path) -> pathlib.Path:
    (disk / "file").write_bytes(bytes(range(256)) * 16384)
    return disk / "file"


async def pending(file: nowait.File, path: pathlib.Path) -> nowait.Operation[bytes]:
    """Return a read in flight: one whose data is not cached."""
    for attempt in range(100):
        drop_cache(path)
        operation = file.read_at(1 << 20, attempt % 3 << 20)
        if not operation.done():
            return operation
        await operation
    raise AssertionError("a hundred reads in turn were over at once, without a page in memory")


def test_a_pending_operation_is_a_future(path: pathlib.Path, run_asyncio: Run) -> None:
    async def main() -> None:
        async with nowait.open(path) as file:
            operation = await pending(file, path)
            assert asyncio.isfuture(operation)
            assert operation.get_loop() is asyncio.get_running_loop()
            with pytest.raises(asyncio.InvalidStateError):
                operation.result()
            with pytest.raises(asyncio.InvalidStateError):
                operation.exception()
            told: list[Any] = []
            operation.add_done_callback(told.append)
            operation.add_done_callback(told.clear)  # type: ignore[arg-type]
            assert operation.remove_done_callback(told.clear) == 1  # type: ignore[arg-type]
            done, left = await asyncio.wait([operation])
            assert (done, left) == ({operation}, set())
            assert operation.exception() is None and not operation.cancelled()
            assert told == [operation]
            assert len(await operation) == len(await operation) == 1 << 20
            operation.add_done_callback(told.append)
            assert told == [operation], "callbacks are for the loop to call"
            await asyncio.sleep(0)
            assert told == [operation, operation]

    run_asyncio(main())


def test_callbacks_outlive_one_that_cannot_be_compared(
    path: pathlib.Path, run_asyncio: Run
) -> None:
    class Incomparable:
        def __eq__(self, other: object) -> bool:
            raise ValueError("which one?")

        def __call__(self, operation: object) -> None:
            told.append(operation)

    told: list[object] = []

    async def main() -> None:
        async with nowait.open(path) as file:
            operation = await pending(file, path)
            operation.add_done_callback(told.append)
            operation.add_done_callback(Incomparable())
            with pytest.raises(ValueError, match="which one"):
                operation.remove_done_callback(print)  # type: ignore[arg-type]
            await operation
            assert told == [operation, operation]

    run_asyncio(main())


def test_several_tasks_await_one_operation(path: pathlib.Path, run: Run) -> None:
    async def length(operation: nowait.Operation[bytes]) -> int:
        return len(await operation)

    async def main() -> None:
        async with nowait.open(path) as file:
            operation = await pending(file, path)
            lengths = await gather(*(length(operation) for _ in range(5)))
            assert lengths == [1 << 20] * 5

    run(main())


def test_a_cancelled_task_ends_before_its_read(path: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        async with nowait.open(path) as file:
            ended_early = 0
            for _ in range(20):
                operation = await pending(file, path)

                async def wait(operation: nowait.Operation[bytes] = operation) -> None:
                    await operation

                async with anyio.create_task_group() as group:
                    group.start_soon(wait)
                    await anyio.lowlevel.checkpoint()
                    group.cancel_scope.cancel()
                ended_early += operation.cancelled()
                assert operation.done() and not operation.cancel()
            assert ended_early
            assert await file.read_at(3, 1) == b"\1\2\3"

    run(main())


def test_a_write_that_is_cancelled_while_it_waits_is_not_done(
    path: pathlib.Path, run: Run
) -> None:
    async def main() -> None:
        async with nowait.open(path, "rb+", cache="user") as file:
            before = await file.read_at(4096, 0)
            async with file.lend(4096, 0) as views:
                operation = file.write_at(bytes(4096), 0)
                assert not operation.done() and operation.cancel()
                # The operation ends now, not when the program gives the lent pages back.
                with anyio.fail_after(LIMIT):
                    while nowait.in_flight().requests > 0:
                        await anyio.sleep(0.001)
                assert operation.cancelled() and bytes(views[0][:8]) == before[:8]
            await file.sync()
            assert await file.read_at(4096, 0) == before

    run(main())
    assert path.read_bytes()[:8] == bytes(range(8))


def test_a_task_of_asyncio_is_cancelled_with_its_message(
    path: pathlib.Path, run_asyncio: Run
) -> None:
    async def main() -> None:
        async with nowait.open(path) as file:
            told = 0
            for _ in range(20):
                operation = await pending(file, path)

                async def wait(operation: nowait.Operation[bytes] = operation) -> bytes:
                    return await operation

                task = asyncio.create_task(wait())
                await asyncio.sleep(0)
                task.cancel("enough")
                try:
                    await task
                except asyncio.CancelledError as error:
                    assert error.args == (("enough",) if TELLS else ())
                    told += operation.cancelled()
                assert operation.done() and not operation.cancel()
            assert told

    run_asyncio(main())


def test_gather_returns_what_was_cancelled(path: pathlib.Path, run_asyncio: Run) -> None:
    async def main() -> None:
        async with nowait.open(path) as file:
            for message in (None, "enough"):
                cancelled = await pending(file, path)
                cancelled.cancel(message)
                many = asyncio.gather(cancelled, file.read_at(2, 1), return_exceptions=True)
                error, data = await asyncio.wait_for(many, 60)
                assert isinstance(error, asyncio.CancelledError) and data == b"\1\2"
                assert error.args == (message or "",)

    run_asyncio(main())


def test_a_time_limit_cancels(path: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        async with nowait.open(path) as file:
            cancelled = 0
            for limit in [0, 0.0001, 0.001] * 5:
                operation = await pending(file, path)
                try:
                    with anyio.fail_after(limit):
                        await operation
                except TimeoutError:
                    cancelled += operation.cancelled()  # or it was just over
                else:
                    assert not operation.cancelled()
                assert operation.done()
            assert cancelled

    run(main())


def test_a_time_limit_of_asyncio_cancels(path: pathlib.Path, run_asyncio: Run) -> None:
    async def main() -> None:
        async with nowait.open(path) as file:
            for _ in range(10):
                operation = await pending(file, path)
                try:
                    await asyncio.wait_for(operation, 0)
                except asyncio.TimeoutError:
                    assert operation.cancelled()
                else:
                    assert operation.done()

    run_asyncio(main())


def test_a_file_whose_opening_was_cancelled_is_closed(path: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        for _ in range(20):
            with anyio.CancelScope() as scope:
                scope.cancel()
                await nowait.open(path)
        gc.collect()
        # A helper thread closes each file, perhaps after the check.
        while any(is_open(number, path) for number in os.listdir("/proc/self/fd")):
            await nowait.read_bytes(path)

    run(main())


def is_open(number: str, path: pathlib.Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}") == str(path)
    except FileNotFoundError:
        return False


def test_a_buffer_stays_locked_until_the_engine_is_done_with_it(
    path: pathlib.Path, run: Run
) -> None:
    async def main() -> None:
        async with nowait.open(path, cache="direct") as file:
            buffer = bytearray(1 << 20)
            with memoryview(buffer)[:0]:
                with pytest.raises(BufferError):
                    buffer.clear()
            operation = file.readinto_at(buffer, 0)
            operation.cancel()
            # While the test makes other reads, the cancelled read ends too, and the buffer is
            # unlocked.
            while True:
                await file.read_at(4096, 0)
                try:
                    buffer.clear()
                    break
                except BufferError:
                    await anyio.lowlevel.checkpoint()

    run(main())


def test_forgotten_operations_end(path: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        async with nowait.open(path) as file:
            for round in range(200):
                if round % 50 == 0:
                    drop_cache(path)
                file.read_at(4096, round * 8192)
                file.readinto_at(bytearray(4096), round * 8192)
                file.read_many([(round * 8192, 10), (round, 10)])
            gc.collect()
            await file.read_at(1, 0)

    run(main())


def test_a_loop_that_ends_leaves_its_requests_to_the_next(path: pathlib.Path, run: Run) -> None:
    async def begin() -> None:
        file = await nowait.open(path)
        await pending(file, path)
        await file.close()

    async def read() -> bytes:
        async with nowait.open(path) as file:
            drop_cache(path)
            return await file.read_at(4, 2 << 20)

    for _ in range(10):
        run(begin())
        assert run(read()) == b"\0\1\2\3"


def test_many_loops_in_many_threads(path: pathlib.Path, run: Run) -> None:
    sums: list[int] = []

    async def read() -> int:
        async with nowait.open(path) as file:
            drop_cache(path)
            many = await gather(*(file.read_at(4096, at << 12) for at in range(0, 500, 7)))
            return sum(map(len, many))

    def threads() -> None:
        workers = [threading.Thread(target=lambda: sums.append(run(read()))) for _ in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    for _ in range(3):
        threads()
    assert sums == [72 * 4096] * 18


def test_a_request_that_waits_needs_a_loop(path: pathlib.Path) -> None:
    async def opened() -> nowait.File:
        return await nowait.open(path, "rb+")

    file = asyncio.run(opened())
    with pytest.raises(RuntimeError, match="no running event loop"):
        file.write_at(b"x", 0)
    with pytest.raises(RuntimeError, match="no running event loop"):
        file.size()

    async def close() -> None:
        await file.close()

    asyncio.run(close())


def test_a_failure_that_no_task_awaits_is_told(path: pathlib.Path, run_asyncio: Run) -> None:
    async def main() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        opening = nowait.open(path.parent / "missing")._file._open()
        await asyncio.wait([opening])  # type: ignore[type-var]
        del opening
        gc.collect()
        assert [type(context["exception"]) for context in told] == [FileNotFoundError]

    run_asyncio(main())


def test_a_file_that_is_not_closed_is_warned_of(path: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        file = await nowait.open(path)
        number = file.fileno()
        await anyio.lowlevel.checkpoint()  # the loop holds what woke this step
        with pytest.warns(ResourceWarning, match="unclosed file"):
            del file
            gc.collect()
        # A helper thread closes the lost file in any case; this open comes after the close.
        async with nowait.open(path) as other:
            await other.size()
            while os.path.exists(f"/proc/self/fd/{number}") and other.fileno() != number:
                if os.readlink(f"/proc/self/fd/{number}") != str(path):
                    break
                await other.size()

    run(main())


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nothing_is_left_behind(path: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        async with nowait.open(path) as file:

            async def reads(count: int) -> None:
                for index in range(count // 20):
                    if index % 500 == 0:
                        drop_cache(path)
                    await gather(*(file.read_at(4096, at << 12) for at in range(10)))
                    await file.read_many([(at << 12, 4096) for at in range(10)])

            await reads(MANY // 4)
            gc.collect()
            objects, before = len(gc.get_objects()), resident()
            descriptors = sorted(os.listdir("/proc/self/fd"))
            await reads(MANY)
            gc.collect()
            assert len(gc.get_objects()) - objects < 200
            assert sorted(os.listdir("/proc/self/fd")) == descriptors
            # 20,000 lost buffers would take 80 MB.
            assert resident() - before < 16 << 20

    run(main())


def test_cycles_are_collected(disk: pathlib.Path, run_asyncio: Run) -> None:
    class Holder:
        operation: nowait.Operation[None]

        def told(self, _: object) -> None:
            raise AssertionError("it never ends")

    async def main() -> None:
        held: list[weakref.ref[Any]] = []
        for _ in range(100):  # objects that were free come again
            holder = Holder()
            holder.operation = turn()
            holder.operation.add_done_callback(holder.told)
            held.append(weakref.ref(holder))
            file: Any = nowait.File(disk / "file", "wb")
            file.opening = file._open()
            await file.opening
            file.lines = aiter(file)
            await file.close()
            held.append(weakref.ref(file))
        del holder, file
        gc.collect()
        assert [it for it in held if it() is not None] == []

    run_asyncio(main())
