"""Forked children, exits, backends, containers: each in a process of its own."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib

import pytest
from conftest import FULL, python

BACKENDS = ["uring", "kaio", "threads"]

READS = """
import asyncio, os, sys, nowait
path = sys.argv[1]

async def main():
    name = nowait.backend().name
    assert name == os.environ.get("EXPECTED", name), nowait.backend()
    async with nowait.open(path, "wb+") as file:
        await file.write_at(bytes(range(256)) * 4096, 0)
        await file.sync()
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        reads = [file.read_at(4096, at << 12) for at in range(0, 256, 3)]
        assert await asyncio.gather(*reads) == [bytes(range(256)) * 16] * 86
    for cache in ("user", "direct"):
        async with nowait.open(path, cache=cache) as file:
            assert await file.read_many([(0, 4096), (8192, 4096)]) == [bytes(range(256)) * 16] * 2
    print("read")
asyncio.run(main())
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_backend_reads_what_was_written(disk: pathlib.Path, backend: str) -> None:
    ended = python(READS, str(disk / "file"), NOWAIT_BACKEND=backend, EXPECTED=backend)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "read\n", "")


def test_an_unknown_backend_is_told_and_another_is_used(disk: pathlib.Path) -> None:
    ended = python(READS, str(disk / "file"), NOWAIT_BACKEND="fast")
    assert (ended.returncode, ended.stdout) == (0, "read\n")
    assert ended.stderr.startswith("nowait: NOWAIT_BACKEND=fast: expected auto, uring")


FORK = """
import asyncio, errno, os, sys, warnings, nowait
path = sys.argv[1]
# Python 3.12 and later warn about every process with threads, also about the engine's threads.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

async def read():
    async with nowait.open(path) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        reads = [file.read_at(4096, at << 12) for at in range(9)]
        return sum(map(len, await asyncio.gather(*reads)))

async def opened():
    return await nowait.open(path)

async def closed(file):
    await file.close()

assert asyncio.run(read()) == 9 * 4096
file = asyncio.run(opened())
children = []
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        async def main():
            try:
                await file.read_at(1, 0)
                return 3
            except OSError as error:
                assert error.errno == errno.EINVAL and "before the fork" in str(error), error
            await file.close()
            assert await read() == 9 * 4096
            return 0
        sys.exit(asyncio.run(main()))
    children.append(child)
assert asyncio.run(read()) == 9 * 4096
for child in children:
    assert os.waitpid(child, 0)[1] == 0
asyncio.run(closed(file))
print("forked")
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_forked_child_has_an_engine_of_its_own(disk: pathlib.Path, backend: str) -> None:
    (disk / "file").write_bytes(bytes(100_000))
    children = "50" if FULL else "4"
    ended = python(FORK, str(disk / "file"), children, NOWAIT_BACKEND=backend)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "forked\n", "")


FORKED_STREAM = """
import asyncio, errno, os, sys, warnings, nowait
warnings.simplefilter("ignore")

async def refused(file):
    for call in (lambda: file.write(bytes(1 << 20)), lambda: file.read(1), lambda: file.seek(0, 2)):
        try:
            await call()
        except OSError as error:
            assert error.errno == errno.EINVAL, error
        else:
            return 3
    await file.flush()
    await file.close()
    return 0

async def main():
    file = await nowait.open(sys.argv[1], "wb+")
    for _ in range(100):
        await file.seek(0)
        await file.write(b"1" * (32 << 20))
        flushing = asyncio.ensure_future(file.flush())
        await asyncio.sleep(0)
        if not (flushing.done() or file._late.done()):
            break
        await flushing  # the write was over at once
    assert not flushing.done()
    child = os.fork()
    if child == 0:
        try:
            os._exit(asyncio.run(asyncio.wait_for(refused(file), 60)))
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(4)
    await flushing
    await file.close()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

sys.exit(asyncio.run(main()))
"""


def test_a_child_waits_for_nothing_that_its_parent_has_begun(disk: pathlib.Path) -> None:
    ended = python(FORKED_STREAM, str(disk / "file"))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (disk / "file").read_bytes() == b"1" * (32 << 20)


EXIT = """
import asyncio, sys, nowait

async def main():
    global file
    file = await nowait.open(sys.argv[1], "wb+", cache=sys.argv[2])
    for at in range(100):
        file.write_at(b"%04095d\\n" % at, at << 12)
    asyncio.get_running_loop().stop()

loop = asyncio.new_event_loop()
try:
    loop.run_until_complete(main())
except RuntimeError:
    pass
if sys.argv[3] == "raise":
    raise SystemExit(3)
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cache", ["host", "user", "direct"])
@pytest.mark.parametrize("end", ["return", "raise"])
def test_nothing_is_lost_at_exit(disk: pathlib.Path, backend: str, cache: str, end: str) -> None:
    path = disk / "file"
    ended = python(EXIT, str(path), cache, end, NOWAIT_BACKEND=backend)
    assert ended.returncode == (3 if end == "raise" else 0), ended.stderr
    assert path.read_bytes() == b"".join(b"%04095d\n" % at for at in range(100))


FULL_DISK = """
import asyncio, sys, nowait

async def main():
    for path in sys.argv[1:] + ["/dev/full"] * 8:
        files.append(await nowait.open(path, "rb+"))
        await files[-1].write(b"kept")

files = []
asyncio.run(main())
"""


def test_at_exit_a_stream_that_cannot_be_written_does_not_stop_the_others(
    disk: pathlib.Path,
) -> None:
    paths = [disk / f"file{at}" for at in range(8)]
    for path in paths:
        path.touch()
    ended = python(FULL_DISK, *map(str, paths))
    assert ended.stderr.count("No space left on device") == 8
    assert [path.read_bytes() for path in paths] == [b"kept"] * 8


APPEND = """
import asyncio, sys, nowait

async def main():
    global file
    other = await nowait.open(sys.argv[1] + ".other", "wb")
    # The only worker is busy with this write first.
    other.write_at(bytes(128 << 20), 0)
    other.sync()
    file = await nowait.open(sys.argv[1], "ab")
    await file.write(b"1" * 100_000)
    await file.write(b"2")
    assert not file._late.done()

asyncio.run(main())
"""


def test_at_exit_appends_keep_their_order(disk: pathlib.Path) -> None:
    workers = {"NOWAIT_BACKEND": "threads", "NOWAIT_WORKERS": "1"}
    ended = python(APPEND, str(disk / "file"), **workers)
    assert ended.returncode == 0, ended.stderr
    assert (disk / "file").read_bytes() == b"1" * 100_000 + b"2"


WAITS_FOR_NOBODY = """
import asyncio, os, sys, nowait
fifo = sys.argv[1] + ".fifo"
os.mkfifo(fifo)

async def main():
    # Start more reads than there are helper threads at first.
    waits = [nowait.read_bytes(fifo) for _ in range(20)]
    await asyncio.sleep(0.05)
    await nowait.write_bytes(sys.argv[1], b"beside")

asyncio.run(main())
print("over", flush=True)
"""


def test_the_exit_does_not_wait_for_a_fifo_that_nobody_opens(disk: pathlib.Path) -> None:
    ended = python(WAITS_FOR_NOBODY, str(disk / "file"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "over\n", "")
    assert (disk / "file").read_bytes() == b"beside"


INTERRUPTED = """
import asyncio, os, signal, sys, threading, time, nowait
fifo = sys.argv[1] + ".fifo"
os.mkfifo(fifo)
# A shell starts background commands with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)

async def main():
    # The exit waits for writes, and this write has no reader.
    global never
    never = nowait.write_bytes(fifo, b"never")
    await asyncio.sleep(0.05)

asyncio.run(main())
threading.Thread(target=interrupt, daemon=True).start()
"""


def test_the_exit_hears_an_interrupt(disk: pathlib.Path) -> None:
    ended = python(INTERRUPTED, str(disk / "file"))
    assert "KeyboardInterrupt" in ended.stderr, ended.stderr


APPENDER = """
import asyncio, sys, nowait

async def main():
    async with nowait.open(sys.argv[1], "ab", cache=sys.argv[2]) as file:
        for line in range(300):
            await file.write(b"%07d\\n" % line)
            await file.flush()

asyncio.run(main())
"""


@pytest.mark.parametrize("cache", ["user", "host"])
def test_two_processes_append_to_one_file(disk: pathlib.Path, cache: str) -> None:
    path = disk / "log"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(lambda _: python(APPENDER, str(path), cache), range(2)))
    assert [end.returncode for end in ended] == [0, 0], ended
    lines = sorted(path.read_bytes().splitlines())
    assert lines == sorted([b"%07d" % line for line in range(300)] * 2)


CONTAINER = os.environ.get("NOWAIT_SECCOMP_RUN")


@pytest.mark.parametrize("profile, left", [("docker", "kaio"), ("bare", "threads")])
def test_under_the_filter_of_a_container_the_next_backend_serves(
    disk: pathlib.Path, profile: str, left: str
) -> None:
    assert CONTAINER, "NOWAIT_SECCOMP_RUN names the program that installs the filter"
    script = (
        "import os, sys; os.execv(sys.argv[1], [sys.argv[1], '--profile', sys.argv[2], '--', "
        "sys.executable, '-c', sys.argv[3], sys.argv[4]])"
    )
    ended = python(script, CONTAINER, profile, READS, str(disk / "file"), EXPECTED=left)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "read\n", "")
