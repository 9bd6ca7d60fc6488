"""Forks and exits at random moments, while threads read."""

from __future__ import annotations

import pathlib

import pytest
from conftest import FULL, python

BACKENDS = ["uring", "kaio", "threads"]

READERS = """
import asyncio, os, random, sys, threading, warnings, nowait
warnings.simplefilter("ignore")
path, count = sys.argv[1], int(sys.argv[2])

async def read(rounds):
    async with nowait.open(path) as file, nowait.open(path, cache="user") as cached:
        while rounds:
            rounds -= 1
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            many = [one.read_at(4096, random.randrange(200) << 12) for one in (file, cached) * 5]
            if random.random() < 0.2:
                many[0].cancel()
            for data in await asyncio.gather(*many, return_exceptions=True):
                assert isinstance(data, asyncio.CancelledError) or data == b"storm..." * 512

def begin(work):
    for _ in range(3):
        threading.Thread(target=lambda: asyncio.run(work()), daemon=True).start()
"""

FORKS = (
    READERS
    + """
begin(lambda: read(-1))
asyncio.run(read(2))
children = []
for _ in range(count):
    child = os.fork()
    if child == 0:
        asyncio.run(read(3))
        sys.exit()
    children.append(child)
    asyncio.run(read(1))
for child in children:
    assert os.waitpid(child, 0)[1] == 0
print("forked", flush=True)
os._exit(0)
"""
)

EXIT = (
    READERS
    + """
async def leave(at):
    await read(count)
    file = await nowait.open(path, "rb+")
    other = await nowait.open(path + str(at), "wb", cache=random.choice(["host", "user"]))
    for block in range(200):
        file.read_at(4096, block << 12)
        file.readinto_at(bytearray(4096), block << 12)
        other.write_at(b"storm..." * 512, block << 12)
    # The open begins when the loop has ended.
    nowait.open(path)._file._open()

for at in range(3):
    threading.Thread(target=lambda at=at: asyncio.run(leave(at))).start()
sys.exit(7)
"""
)


@pytest.mark.parametrize("backend", BACKENDS)
def test_children_forked_while_threads_read_have_their_own_engine(
    disk: pathlib.Path, backend: str
) -> None:
    (disk / "file").write_bytes(b"storm..." * (200 * 512))
    ended = python(FORKS, str(disk / "file"), "200" if FULL else "8", NOWAIT_BACKEND=backend)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "forked\n", "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_threads_leave_in_flight_is_done_at_exit(disk: pathlib.Path, backend: str) -> None:
    content = b"storm..." * (200 * 512)
    (disk / "file").write_bytes(content)
    for rounds in range(60 if FULL else 4):
        ended = python(EXIT, str(disk / "file"), str(rounds), NOWAIT_BACKEND=backend)
        assert (ended.returncode, ended.stderr) == (7, "")
        for at in range(3):
            assert (disk / f"file{at}").read_bytes() == content
            (disk / f"file{at}").unlink()
