"""The file system for fsspec: fsspec's own tests for file systems, and zarr on it."""

from __future__ import annotations

import asyncio
import importlib
import pathlib
from typing import Any

import fsspec
import nowait
import pytest
from fsspec.tests import abstract
from nowait.fsspec import FileSystem

fsspec.register_implementation("nowait", FileSystem)

# A warning of pytest about fixtures of fsspec's tests.
pytestmark = pytest.mark.filterwarnings("ignore:Class-scoped fixtures")


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture(scope="class")
    def fs(self) -> FileSystem:
        return FileSystem()

    @pytest.fixture
    def fs_path(self, disk: pathlib.Path) -> str:
        return str(disk)


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass


def test_ranges_are_slices(disk: pathlib.Path) -> None:
    content = bytes(range(256)) * 40
    (disk / "one").write_bytes(content)
    (disk / "two").write_bytes(content[::-1])
    bounds = [(0, 10), (None, 5), (5, None), (-7, None), (-9, -3), (10, 5), (20_000, None)]
    bounds += [(10_000, 20_000), (None, None), (-20_000, 3)]

    async def main() -> None:
        fs = fsspec.filesystem("nowait", asynchronous=True)
        one, two = f"nowait://{disk}/one", str(disk / "two")
        for first, last in bounds:
            assert await fs._cat_file(one, first, last) == content[first:last]
        firsts, lasts = zip(*bounds * 2)
        read = await fs._cat_ranges([one, two] * len(bounds), list(firsts), list(lasts))
        for at, (first, last) in enumerate(bounds * 2):
            assert read[at] == (content[::-1] if at % 2 else content)[first:last]
        read = await fs._cat_ranges([one, str(disk / "none")], 1, 3)
        assert read[0] == b"\1\2" and isinstance(read[1], FileNotFoundError)
        with pytest.raises(FileNotFoundError):
            await fs._cat_ranges([one, str(disk / "none")], 1, 3, on_error="raise")

    asyncio.run(main())


def test_ranges_of_several_files_are_read_side_by_side(
    disk: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (disk / name).write_bytes(name.encode())
    read = nowait.fsspec.read_ranges

    async def main() -> None:
        other_has_begun = asyncio.Event()

        async def read_after(path: str, ranges: list[tuple[int | None, int | None]]) -> list[bytes]:
            if path.endswith("one"):
                await other_has_begun.wait()
            other_has_begun.set()
            return await read(path, ranges)

        monkeypatch.setattr(nowait.fsspec, "read_ranges", read_after)
        fs = fsspec.filesystem("nowait", asynchronous=True)
        paths = [str(disk / name) for name in ("one", "two", "one")]
        reads = fs._cat_ranges(paths, [0, 0, 1], [2, 3, 3])
        assert await asyncio.wait_for(reads, 20) == [b"on", b"two", b"ne"]

    asyncio.run(main())


def test_what_is_awaited_is_what_is_called(disk: pathlib.Path) -> None:
    async def main() -> None:
        fs: Any = FileSystem(asynchronous=True)
        path = f"{disk}/a/b/file"
        await fs._pipe_file(path, b"content")
        with pytest.raises(FileExistsError):
            await fs._pipe_file(path, b"other", mode="create")
        assert await fs._info(path) == LOCAL.info(path)
        assert await fs._ls(f"{disk}/a") == LOCAL.ls(f"{disk}/a", detail=True)
        assert await fs._find(str(disk)) == [path]
        assert await fs._glob(f"{disk}/*/b/f*") == [path]
        assert [top async for top, _, _ in fs._walk(str(disk))][-1] == f"{disk}/a/b"
        async with await fs.open_async(path) as file:
            assert isinstance(file, nowait.File) and await file.read() == b"content"
        async with await fs.open_async(f"{disk}/c/text", "w") as text:
            await text.write("text")
        await fs._cp_file(path, f"{disk}/d/copy")
        assert (disk / "d/copy").read_bytes() == b"content"
        await fs._rm(f"{disk}/a", recursive=True)
        assert not await fs._exists(path) and await fs._isfile(f"{disk}/c/text")

    asyncio.run(main())


LOCAL = fsspec.filesystem("file")


def test_zarr_writes_and_reads_arrays(disk: pathlib.Path) -> None:
    """zarr reads the chunks of an array concurrently, in its own loop."""
    numpy, zarr = pytest.importorskip("numpy"), pytest.importorskip("zarr")
    numbers = numpy.arange(250_000, dtype="int64").reshape(500, 500)
    array = zarr.create_array(
        f"nowait://{disk}/array", shape=(500, 500), chunks=(50, 60), dtype="int64"
    )
    array[:] = numbers
    assert type(array.store.fs) is FileSystem  # type: ignore[attr-defined]
    assert len(list((disk / "array").rglob("*"))) > 90
    again: Any = zarr.open_array(f"nowait://{disk}/array", mode="r")
    assert (again[:] == numbers).all() and (again[123:456, 78] == numbers[123:456, 78]).all()
    plain: Any = zarr.open_array(str(disk / "array"), mode="r")
    assert (plain[:] == numbers).all(), "what it wrote is what others read"


def test_the_package_says_where_the_protocol_is() -> None:
    tomllib = pytest.importorskip("tomllib")  # since CPython 3.11
    project = pathlib.Path(__file__).parent.parent / "pyproject.toml"
    with open(project, "rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]["fsspec.specs"]
    module, name = points["nowait"].rsplit(".", 1)
    assert getattr(importlib.import_module(module), name) is FileSystem
