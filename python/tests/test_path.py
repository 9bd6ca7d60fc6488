"""Paths."""

from __future__ import annotations

import inspect
import os
import pathlib
import sys

import nowait
import pytest
from conftest import Run


def test_what_asks_the_file_system_is_awaited(disk: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        folder = nowait.Path(disk) / "folder"
        assert not await folder.exists()
        await folder.mkdir(parents=True, exist_ok=True)
        file = folder / "file.txt"
        assert await file.write_text("one\ntwo\n") == 8
        assert await file.read_bytes() == b"one\ntwo\n"
        assert await file.write_bytes(b"ONE\n", atomic=True) == 4
        assert await file.read_text() == "ONE\n"
        assert await file.is_file() and (await file.stat()).st_size == 4
        async with file.open("a+") as opened:
            await opened.write("three\n")
            await opened.seek(0)
            assert [line async for line in opened] == ["ONE\n", "three\n"]
        moved = await file.rename(folder / "moved")
        assert type(moved) is nowait.Path and moved.name == "moved"
        await (folder / "link").symlink_to(moved)
        assert await (folder / "link").readlink() == moved
        assert await (folder / "link").resolve() == await moved.resolve()
        assert await moved.samefile(folder / "link")
        await moved.unlink()
        await moved.unlink(missing_ok=True)
        with pytest.raises(FileNotFoundError):
            await moved.stat()
        assert await nowait.Path.cwd() == pathlib.Path.cwd()
        assert type(await nowait.Path.home()) is nowait.Path

    run(main())


def test_folders_are_for_async_for(disk: pathlib.Path, run: Run) -> None:
    for number in range(600):
        (disk / f"{number}.txt").touch()
    (disk / "sub").mkdir()
    (disk / "sub" / "below.txt").touch()

    async def main() -> None:
        path = nowait.Path(disk)
        found = [one async for one in path.iterdir()]
        assert {type(one) for one in found} == {nowait.Path}
        assert sorted(map(str, found)) == sorted(map(str, disk.iterdir()))
        assert len([one async for one in path.glob("1*.txt")]) == 111
        assert len([one async for one in path.rglob("*.txt")]) == 601
        if sys.version_info >= (3, 12):
            walked = [(top, folders) async for top, folders, _ in path.walk()]
            assert walked == [(path, ["sub"]), (path / "sub", [])]

    run(main())


def test_paths_are_pure_paths(disk: pathlib.Path) -> None:
    path = nowait.Path("a", "b.txt")
    assert path == pathlib.PurePosixPath("a/b.txt") and hash(path) == hash(path.parent / "b.txt")
    assert type(path.parent) is type(path.with_suffix(".md")) is type("x" / path) is nowait.Path
    assert os.fspath(path) == str(path) == "a/b.txt"
    assert repr(path) == "Path('a/b.txt')"


def test_everything_that_pathlib_awaits_is_there() -> None:
    pure, missing = dir(pathlib.PurePosixPath), []
    for name in dir(pathlib.Path):
        if not name.startswith("_") and name not in pure:
            method = getattr(nowait.Path, name, None)
            if method is None or not (inspect.isfunction(method) or inspect.ismethod(method)):
                missing.append(name)
    # Python 3.12 has removed `link_to`.
    assert set(missing) <= {"link_to", "copy", "copy_into", "from_uri", "info", "move", "move_into"}
