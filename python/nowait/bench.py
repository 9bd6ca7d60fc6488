"""Compare nowait with other ways to read files in an event loop: ``python -m nowait.bench``.

Every engine makes the same reads, in turn, in several rounds, each round in a process of its own.
The report has the median rates, and beside each the median of the longest times that the event loop
was blocked. Peers that are not installed are left out: the packages of
``python/requirements-bench.txt``. ``--c-api`` names the program of the C API.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import base64
import json
import multiprocessing
import os
import pathlib
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import nowait

BLOCK, LARGE = 4096, 64 << 10
Reads = list[tuple[int, int]]
Read = Callable[[int, int], Awaitable[Any]]


class Engine:
    """A way to read: one range, or many at a time."""

    def __init__(
        self,
        read: Read,
        many: Callable[[Reads], Awaitable[Any]] | None = None,
        forget: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.read = read
        self._many = many
        self._forget = forget

    async def forget(self) -> None:
        """Drop the data that the engine itself has cached of the file."""
        if self._forget is not None:
            await self._forget()

    async def many(self, ranges: Reads) -> None:
        """Read ranges, offset and length each, all in flight together."""
        if self._many is not None:
            await self._many(ranges)
        else:
            await asyncio.gather(*(self.read(length, offset) for offset, length in ranges))


async def pread_engine(path: str, stack: AsyncExitStack) -> Engine:
    fd = os.open(path, os.O_RDONLY)
    stack.callback(os.close, fd)

    async def read(length: int, offset: int) -> bytes:
        return os.pread(fd, length, offset)

    async def many(ranges: Reads) -> list[bytes]:
        return [os.pread(fd, length, offset) for offset, length in ranges]

    return Engine(read, many)


def nowait_engine(cache: nowait.CacheMode) -> Callable[[str, AsyncExitStack], Awaitable[Engine]]:
    async def make(path: str, stack: AsyncExitStack) -> Engine:
        file = await stack.enter_async_context(nowait.open(path, cache=cache))

        async def forget() -> None:
            # A cache in the process keeps its data after the file is closed.
            await file.advise("dontneed")

        return Engine(file.read_at, file.read_many, forget)

    return make


async def thread_engine(path: str, stack: AsyncExitStack) -> Engine:
    fd = os.open(path, os.O_RDONLY)
    stack.callback(os.close, fd)
    return Engine(lambda length, offset: asyncio.to_thread(os.pread, fd, length, offset))


async def aiofiles_engine(path: str, stack: AsyncExitStack) -> Engine:
    import aiofiles  # type: ignore[import-untyped, import-not-found, unused-ignore]

    # A file has one position: each read in flight needs a file of its own.
    files: list[Any] = []
    opened = [await stack.enter_async_context(aiofiles.open(path, "rb")) for _ in range(64)]
    files.extend(opened)

    async def read(length: int, offset: int) -> Any:
        file = files.pop()
        try:
            await file.seek(offset)
            return await file.read(length)
        finally:
            files.append(file)

    return Engine(read)


async def anyio_engine(path: str, stack: AsyncExitStack) -> Engine:
    import anyio  # type: ignore[import-not-found, unused-ignore]

    files: list[Any] = []
    for _ in range(64):
        files.append(await stack.enter_async_context(await anyio.open_file(path, "rb")))

    async def read(length: int, offset: int) -> Any:
        file = files.pop()
        try:
            await file.seek(offset)
            return await file.read(length)
        finally:
            files.append(file)

    return Engine(read)


def caio_engine(kind: str) -> Callable[[str, AsyncExitStack], Awaitable[Engine]]:
    async def make(path: str, stack: AsyncExitStack) -> Engine:
        import importlib

        module: Any = importlib.import_module(f"caio.{kind}_aio_asyncio")
        fd = os.open(path, os.O_RDONLY)
        stack.callback(os.close, fd)
        context = module.AsyncioContext(max_requests=64)
        stack.callback(context.close)
        return Engine(lambda length, offset: context.read(length, fd, offset))

    return make


async def ayafileio_engine(path: str, stack: AsyncExitStack) -> Engine:
    import ayafileio  # type: ignore[import-not-found, unused-ignore]

    files: list[Any] = []
    for _ in range(64):
        files.append(await stack.enter_async_context(ayafileio.open(path, "rb")))

    async def read(length: int, offset: int) -> Any:
        file = files.pop()
        try:
            await file.seek(offset)
            return await file.read(length)
        finally:
            files.append(file)

    return Engine(read)


ENGINES: dict[str, Callable[[str, AsyncExitStack], Awaitable[Engine]]] = {
    "nowait-host": nowait_engine("host"),
    "nowait-user": nowait_engine("user"),
    "os.pread": pread_engine,
    "to_thread": thread_engine,
    "aiofiles": aiofiles_engine,
    "anyio": anyio_engine,
    "caio-linux": caio_engine("linux"),
    "caio-thread": caio_engine("thread"),
    "caio-python": caio_engine("python"),
    "ayafileio": ayafileio_engine,
}

CASES = ("cached-one", "cached-64", "uncached-64", "lines", "files")


# Ways to read a file of text line by line; each returns the number of lines.


def nowait_lines(cache: nowait.CacheMode) -> Callable[[str], Awaitable[int]]:
    async def read(path: str) -> int:
        count = 0
        async with nowait.open(path, "r", cache=cache) as file:
            async for _ in file:
                count += 1
        return count

    return read


async def open_lines(path: str) -> int:
    count = 0
    with open(path, encoding="utf-8") as file:
        for _ in file:
            count += 1
    return count


async def aiofiles_lines(path: str) -> int:
    import aiofiles

    count = 0
    async with aiofiles.open(path, encoding="utf-8") as file:
        async for _ in file:
            count += 1
            if count == SLOW_LINES:
                break
    return count


async def anyio_lines(path: str) -> int:
    import anyio

    count = 0
    async with await anyio.open_file(path, encoding="utf-8") as file:
        async for _ in file:
            count += 1
            if count == SLOW_LINES:
                break
    return count


# aiofiles and anyio use a thread for each line and would need a minute for 100 MB, so they stop
# early. The report compares rates.
SLOW_LINES = 20_000

LINES: dict[str, Callable[[str], Awaitable[int]]] = {
    "nowait-host": nowait_lines("host"),
    "nowait-user": nowait_lines("user"),
    "open": open_lines,
    "aiofiles": aiofiles_lines,
    "anyio": anyio_lines,
}


async def measure_lines(name: str, path: str) -> tuple[float, float]:
    """Return lines a second, and the longest time that the loop was blocked, in seconds."""
    await nowait.read_bytes(path)
    watch = Watch()
    await asyncio.sleep(0)
    begin = time.perf_counter()
    count = await LINES[name](path)
    took = time.perf_counter() - begin
    return count / took, watch.stop()


# Ways to read a small file whole.


async def read_by_nowait(path: str) -> Any:
    return await nowait.read_bytes(path)


async def read_by_open(path: str) -> Any:
    with open(path, "rb") as file:
        return file.read()


async def read_by_thread(path: str) -> Any:
    return await asyncio.to_thread(pathlib.Path(path).read_bytes)


async def read_by_aiofiles(path: str) -> Any:
    import aiofiles

    async with aiofiles.open(path, "rb") as file:
        return await file.read()


async def read_by_anyio(path: str) -> Any:
    import anyio

    return await anyio.Path(path).read_bytes()


FILES: dict[str, Callable[[str], Awaitable[Any]]] = {
    "nowait-host": read_by_nowait,
    "open": read_by_open,
    "to_thread": read_by_thread,
    "aiofiles": read_by_aiofiles,
    "anyio": read_by_anyio,
}


async def measure_files(name: str, path: str, count: int) -> tuple[float, float]:
    """Return files a second, one after another, and the longest time that the loop was blocked."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path), prefix="nowait-bench-") as folder:
        paths = [os.path.join(folder, str(number)) for number in range(count)]
        for each in paths:
            pathlib.Path(each).write_bytes(random.randbytes(BLOCK))
        for each in paths:
            await FILES[name](each)
        watch = Watch()
        await asyncio.sleep(0)
        begin = time.perf_counter()
        for at, each in enumerate(paths):
            await FILES[name](each)
            if at % 64 == 63:
                await asyncio.sleep(0)  # the others' turn
        took = time.perf_counter() - begin
        return count / took, watch.stop()


class Watch:
    """Measures the longest delay of a timer of the event loop.

    The loop sleeps in between, as a program's loop does: the scheduler preempts a loop that never
    sleeps, whatever else runs.
    """

    EVERY = 0.001

    def __init__(self) -> None:
        self.longest = 0.0
        self._start()

    def _start(self) -> None:
        self._due = time.perf_counter() + self.EVERY
        self._handle = asyncio.get_running_loop().call_later(self.EVERY, self._tick)

    def _tick(self) -> None:
        self.longest = max(self.longest, time.perf_counter() - self._due)
        self._start()

    def stop(self) -> float:
        self._handle.cancel()
        return max(self.longest, time.perf_counter() - self._due)


async def run_case(case: str, engine: Engine, size: int, count: int, seed: int) -> None:
    ranges = choose_ranges(size, LARGE if case == "uncached-64" else BLOCK, count, seed)
    if case == "cached-one":
        for begin in range(0, count, 64):
            for offset, length in ranges[begin : begin + 64]:
                await engine.read(length, offset)
            await asyncio.sleep(0)  # the others' turn: reads of what is cached may not give it
    elif case == "cached-64":
        for begin in range(0, count, 64):
            await engine.many(ranges[begin : begin + 64])
            await asyncio.sleep(0)
    else:
        left = iter(ranges)

        async def worker() -> None:
            for offset, length in left:
                await engine.read(length, offset)

        await asyncio.gather(*(worker() for _ in range(64)))


# The C API reads without Python and without an event loop, in a process of its own.
C_API = {"c-api-host": "host", "c-api-user": "user"}


async def measure_c_api(program: str, cache: str, path: str, ranges: Reads) -> tuple[float, None]:
    """Return reads a second of the program python/bench/read_random.c."""
    forget(path)
    process = await asyncio.create_subprocess_exec(
        *(os.path.abspath(program), path, cache, str(LARGE), "64"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    offsets = array.array("Q", (offset for offset, _ in ranges)).tobytes()
    said, _ = await process.communicate(offsets)
    if process.returncode != 0:
        raise OSError(f"{program}: exit status {process.returncode}")
    return len(ranges) / float(said), None


def choose_ranges(size: int, length: int, count: int, seed: int) -> Reads:
    """Return `count` ranges at random places, the same for the same seed."""
    chosen = random.Random(seed)
    return [(chosen.randrange(size // length) * length, length) for _ in range(count)]


def forget(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


async def measure(case: str, name: str, path: str, size: int, count: int, seed: int) -> Any:
    """Return reads a second, and the longest time that the loop was blocked, in seconds."""
    async with AsyncExitStack() as stack:
        engine = await ENGINES[name](path, stack)
        if case == "uncached-64":
            # Run one round before the measurement: otherwise the measurement would include the time
            # in which the kernel clears memory, most of all for a cache in the process. The C
            # program does the same.
            await run_case(case, engine, size, count, seed)
            await engine.forget()
            forget(path)
        else:
            for offset in range(0, size, 1 << 20):
                await engine.read(1 << 20, offset)
        watch = Watch() if case != "cached-one" else None
        begin = time.perf_counter()
        await run_case(case, engine, size, count, seed)
        took = time.perf_counter() - begin
        held_up = watch.stop() if watch else None
    if watch is None:
        # The delay of the loop is measured in a second round, because the measurement costs a turn
        # of the loop for each read that suspends.
        async with AsyncExitStack() as stack:
            engine = await ENGINES[name](path, stack)
            watch = Watch()
            await run_case(case, engine, size, count // 4, seed)
            held_up = watch.stop()
    return count / took, held_up


def available() -> list[str]:
    """Return the engines whose packages are installed."""
    import importlib.util

    def is_there(name: str) -> bool:
        package = name.split("-")[0]
        ours = package in ("nowait", "open", "os.pread", "to_thread")
        return ours or importlib.util.find_spec(package) is not None

    return [name for name in ENGINES | LINES | FILES if is_there(name)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m nowait.bench", description=__doc__)
    parser.add_argument("--case", choices=CASES, action="append", help="one of them only")
    parser.add_argument("--engine", choices=list(ENGINES | LINES | FILES), action="append")
    parser.add_argument("--folder", default="/var/tmp", help="where the file is made")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller rounds")
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument(
        "--c-api",
        metavar="PROGRAM",
        help="what python/bench/read_random.c was compiled to: a peer in uncached-64",
    )
    options = parser.parse_args()
    engines = options.engine or available()
    if options.c_api:
        if "uncached-64" not in (options.case or CASES):
            parser.error("--c-api: only the case uncached-64 has it")
        if not os.access(options.c_api, os.X_OK):
            parser.error(f"--c-api: no program {options.c_api}: compile python/bench/read_random.c")
    rounds = 3 if options.quick else 9
    rows: list[dict[str, Any]] = []
    for case in options.case or CASES:
        size = (64 << 20 if options.quick else 512 << 20) if case == "uncached-64" else 16 << 20
        count = {"uncached-64": 512 if options.quick else 4096}.get(
            case, 2048 if options.quick else 8192
        )
        if case == "lines":
            size = (10 if options.quick else 100) * 10**6
        if case == "files":
            size, count = 1 << 20, 1000
        able = {"lines": LINES, "files": FILES}.get(case, ENGINES)
        of = [name for name in engines if name in able]
        if case == "uncached-64" and options.c_api:
            of += C_API
        rows += compare(case, of, options.folder, size, count, rounds, options.c_api)
    if options.json:
        result = {
            "schema": 1,
            "host": {"kernel": platform.release(), "cores": os.cpu_count(), "python": sys.version},
            "workload": "python",
            "params": {"quick": options.quick, "backend": nowait.backend().name},
            "rows": rows,
        }
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
    return 0


Figures = dict[str, list[tuple[float, float | None]]]


def compare(
    case: str, engines: list[str], folder: str, size: int, count: int, rounds: int, c_api: str
) -> list[dict[str, Any]]:
    """Measure a case with all engines in turn, and print it; return its rows."""
    figures: Figures = {name: [] for name in engines}
    with tempfile.NamedTemporaryFile(dir=folder, prefix="nowait-bench-") as made:
        for _ in range(size >> 20):
            part = random.randbytes(1 << 20)
            made.write(part if case != "lines" else base64.encodebytes(part)[: 1 << 20])
        made.flush()
        os.fsync(made.fileno())
        for seed in range(rounds):
            for name in engines:

                def one_round(name: str = name, seed: int = seed) -> Coroutine[Any, Any, Any]:
                    if name in C_API:
                        ranges = choose_ranges(size, LARGE, count, seed)
                        return measure_c_api(c_api, C_API[name], made.name, ranges)
                    if case == "lines":
                        return measure_lines(name, made.name)
                    if case == "files":
                        return measure_files(name, made.name, count)
                    return measure(case, name, made.name, size, count, seed)

                try:
                    figures[name].append(run_in_process(one_round))
                except RuntimeError as error:
                    print(f"{name}: {error}", file=sys.stderr)
    return report(case, figures, size, count, rounds)


def run_in_process(one_round: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return the figures of a round, which runs in a process of its own.

    The end of the process also ends threads that an engine leaves behind: ayafileio leaves a
    spinning thread for each event loop that has ended.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        try:
            sender.send((asyncio.run(one_round()), None))
        except Exception as error:
            sender.send((None, f"{type(error).__name__}: {error}"))

    process = context.Process(target=run)
    process.start()
    sender.close()
    try:
        figures, failure = receiver.recv()
    except EOFError:
        figures, failure = None, "its process ended early"
    process.join(60)
    process.kill()
    if failure is not None:
        raise RuntimeError(failure)
    return figures


def report(
    case: str, figures: Figures, size: int, count: int, rounds: int
) -> list[dict[str, Any]]:
    """Print the figures, and return them as rows."""
    what = case if case in ("lines", "files") else "reads"
    much = f"{size >> 20} MiB of text" if case == "lines" else f"{count} {what}"
    print(f"\n{case}: {much}, median of {rounds} rounds by turns")
    print(f"{'engine':14} {what + '/s':>12} {'µs each':>9} {'loop held up, ms':>17}")
    rows = []
    for name, runs in figures.items():
        if not runs:
            continue
        rates = [run[0] for run in runs]
        delays = [run[1] * 1e3 for run in runs if run[1] is not None]
        rate = statistics.median(rates)
        delay = f"{statistics.median(delays):.2f}" if delays else "no loop"
        print(f"{name:14} {rate:12,.0f} {1e6 / rate:9.2f} {delay:>17}")
        for metric, unit, values in (
            ("iops" if what == "reads" else f"{what}_per_s", "1/s", rates),
            ("loop_held_up_ms_max", "ms", delays),
        ):
            if values:
                rows.append(row(name, case, metric, unit, values))
    return rows


def row(engine: str, case: str, metric: str, unit: str, values: list[float]) -> dict[str, Any]:
    return {
        "engine": engine,
        "case": case,
        "metric": metric,
        "unit": unit,
        "runs": values,
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
    }


if __name__ == "__main__":
    sys.exit(main())
