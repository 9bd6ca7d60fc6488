"""Random operations, against the same on an `io.FileIO`."""

from __future__ import annotations

import io
import os
import pathlib
import tempfile
from typing import Any

import nowait
import pytest
from conftest import FULL, RUNS
from hypothesis import HealthCheck, given, settings, strategies

POSITIONS = strategies.one_of(
    strategies.integers(0, 100), strategies.sampled_from([4095, 4096, 4097, 8191, 65536, 70_000])
)
LENGTHS = strategies.one_of(strategies.integers(0, 50), strategies.sampled_from([4096, 10_000]))
STEPS = strategies.one_of(
    strategies.tuples(strategies.just("read"), LENGTHS, POSITIONS),
    strategies.tuples(strategies.just("readinto"), LENGTHS, POSITIONS),
    strategies.tuples(strategies.just("write"), LENGTHS, POSITIONS),
    strategies.tuples(strategies.just("truncate"), POSITIONS, strategies.just(0)),
    strategies.tuples(strategies.just("sync"), strategies.just(0), strategies.just(0)),
    strategies.tuples(strategies.just("forget"), strategies.just(0), strategies.just(0)),
)


async def perform(file: nowait.File, path: str, what: str, value: int, at: int, fill: int) -> Any:
    if what == "read":
        return await file.read_at(value, at)
    if what == "readinto":
        buffer = bytearray(value)
        count = await file.readinto_at(buffer, at)
        return count, bytes(buffer)
    if what == "write":
        return await file.write_at(bytes([fill]) * value, at)
    if what == "truncate":
        return await file.truncate(value)
    if what == "sync":
        return await file.sync()
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return await file.size()


def model(file: io.FileIO, what: str, value: int, at: int, fill: int) -> Any:
    if what == "read":
        return os.pread(file.fileno(), value, at)
    if what == "readinto":
        buffer = bytearray(value)
        return os.preadv(file.fileno(), [buffer], at), bytes(buffer)
    if what == "write":
        return os.pwrite(file.fileno(), bytes([fill]) * value, at)
    if what == "truncate":
        return file.truncate(value)
    if what == "sync":
        return None
    return os.fstat(file.fileno()).st_size


@pytest.mark.parametrize("cache", ["host", "user"])
@settings(
    max_examples=1000 if FULL else 60,
    deadline=None,
    derandomize=not FULL,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(kind=strategies.sampled_from(list(RUNS)), steps=strategies.lists(STEPS, max_size=20))
def test_a_file_is_as_a_file_of_io(
    cache: nowait.CacheMode, kind: str, steps: list[tuple[str, int, int]]
) -> None:
    async def main(folder: str) -> None:
        ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
        with io.FileIO(theirs, "w+") as expected:
            async with nowait.open(ours, "wb+", cache=cache) as file:
                for fill, (what, value, at) in enumerate(steps):
                    result = await perform(file, ours, what, value, at, fill)
                    assert result == model(expected, what, value, at, fill), (what, value, at)
        assert pathlib.Path(ours).read_bytes() == pathlib.Path(theirs).read_bytes()

    with tempfile.TemporaryDirectory(prefix="nowait-python-", dir="/var/tmp") as folder:
        RUNS[kind](main(folder))
