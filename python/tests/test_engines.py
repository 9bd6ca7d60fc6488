"""The package beside the preload library and the C library: one process with several engines."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

DIST = os.environ.get("NOWAIT_DIST", "")

needs_dist = pytest.mark.skipif(
    not pathlib.Path(DIST, "bin/nowait").exists(), reason="NOWAIT_DIST names no dist/"
)

PROGRAM = """
import asyncio, ctypes, os, sys, nowait
path, library = sys.argv[1], sys.argv[2]
CONTENT = open(path, "rb").read()

async def by_the_package():
    async with nowait.open(path) as file, nowait.open(path, cache="user") as cached:
        for one in (file, cached):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            ranges = [(at << 12, 4096) for at in range(256)]
            assert b"".join(await one.read_many(ranges)) == CONTENT

def by_libaio():
    aio, context, fd = ctypes.CDLL(None), ctypes.c_void_p(), os.open(path, os.O_RDONLY)
    assert aio.io_setup(64, ctypes.byref(context)) == 0
    buffer, events = ctypes.create_string_buffer(1 << 20), (ctypes.c_uint64 * (4 * 64))()
    requests = [
        (ctypes.c_uint64 * 8)(7, 0, fd << 32, ctypes.addressof(buffer) + at, 16384, at, 0, 0)
        for at in range(0, 1 << 20, 16384)
    ]
    pointers = (ctypes.c_void_p * 64)(*map(ctypes.addressof, requests))
    assert aio.io_submit(context, 64, pointers) == 64
    assert aio.io_getevents(context, 64, 64, events, None) == 64
    assert list(events[2::4]) == [16384] * 64 and buffer.raw == CONTENT
    assert aio.io_destroy(context) == 0
    os.close(fd)

def by_the_c_library():
    c, engine, file = ctypes.CDLL(library), ctypes.c_void_p(), ctypes.c_void_p()
    assert c.nowait_engine_create(None, ctypes.byref(engine)) == 0
    assert c.nowait_file_open(engine, path.encode(), os.O_RDONLY, 0, 1, ctypes.byref(file)) == 0
    buffer = ctypes.create_string_buffer(1 << 20)
    c.nowait_read.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64)
    assert c.nowait_read(file, buffer, 1 << 20, 0) == 1 << 20 and buffer.raw == CONTENT
    return engine, file

asyncio.run(by_the_package())
kept = by_the_c_library() if library else by_libaio()
asyncio.run(by_the_package())
print("read", flush=True)
sys.stdin.read()
asyncio.run(by_the_package())
"""


@needs_dist
@pytest.mark.parametrize("beside", ["libnowait_preload.so", "libnowait.so.0"])
@pytest.mark.parametrize("backend", ["uring", "kaio", "threads"])
def test_several_engines_work_side_by_side(
    disk: pathlib.Path, beside: str, backend: str
) -> None:
    (disk / "file").write_bytes(os.urandom(1 << 20))
    library = f"{DIST}/lib/{beside}"
    environment = os.environ | {"NOWAIT_BACKEND": backend}
    if "preload" in beside:
        environment["LD_PRELOAD"] = library
    words = [str(disk / "file"), "" if "preload" in beside else library]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout and program.stdin and program.stderr
        said = program.stdout.readline()
        program.stdin.close()
        errors = program.stderr.read()
        assert (said, program.wait(120), errors) == ("read\n", 0, "")
