"""A type checker's findings about the package, and about a program that uses it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import nowait
import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
EXAMPLE = EXAMPLES / "count.py"

PROGRAM = """
import nowait
import pytest
import nowait.aiofiles as aiofiles

async def main(mode: str) -> None:
    async with nowait.open("file") as file:
        reveal_type(file)
        reveal_type(await file.read())
        reveal_type([line async for line in file])
        reveal_type(await file.read_at(1, 2))
        await file.sync()
    async with nowait.open("file", "w+") as text:
        reveal_type(text)
        reveal_type([line async for line in text])
        await text.write(b"")
    reveal_type(await nowait.open("file", mode))
    async with nowait.Path("file").open("rb") as file:
        reveal_type(file)
    reveal_type(await nowait.Path("file").resolve())
    async with aiofiles.open("file") as any_file:
        await any_file.read()
"""

REVEALED = [
    "nowait._file.File",
    "bytes",
    "list[bytes]",
    "bytes",
    "nowait._text.TextFile",
    "list[str]",
    "Any",
    "nowait._file.File",
    "nowait._path.Path",
]


def check(*words: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy")  # not every interpreter has it
    package = pathlib.Path(nowait.__file__).parent
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, *words],
        cwd=package.parent,
        env=os.environ | {"MYPYPATH": str(package.parent)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_strict_checker_has_no_complaint() -> None:
    checked = check("-p", "nowait")
    assert checked.returncode == 0, checked.stdout
    checked = check(*map(str, EXAMPLES.glob("*.py")))
    assert checked.returncode == 0, checked.stdout


def test_a_program_has_the_types_it_should_have(tmp_path: pathlib.Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    told = check(str(tmp_path / "program.py")).stdout
    types = [line.split('"')[1] for line in told.splitlines() if "Revealed type" in line]
    assert [one.replace("builtins.", "") for one in types] == REVEALED, told
    errors = [line for line in told.splitlines() if " error: " in line]
    assert len(errors) == 1 and 'incompatible type "bytes"; expected "str"' in errors[0], told


def test_the_example_counts(tmp_path: pathlib.Path) -> None:
    (tmp_path / "one").write_text("a word\nno\nword\n")
    (tmp_path / "two").write_text("none\n")
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE), "word", "one", "two"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.stdout == "one: 2\ntwo: 0\n", ended.stderr
