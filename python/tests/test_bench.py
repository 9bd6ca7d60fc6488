"""The benchmark: its measurements exist, and the C API makes the same reads."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest
from conftest import FOLDERS
from nowait.bench import run_in_process

SOURCE = pathlib.Path(__file__).parent.parent / "bench" / "read_random.c"
DIST = pathlib.Path(os.environ.get("NOWAIT_DIST", ""))


@pytest.fixture
def memory() -> Iterator[pathlib.Path]:
    """A folder on tmpfs: thousands of files are slow on a shared disk."""
    with tempfile.TemporaryDirectory(dir=FOLDERS["tmpfs"], prefix="nowait-python-") as folder:
        yield pathlib.Path(folder)


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nowait.bench", "--quick", *words],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("case", ["cached-one", "cached-64", "files"])
def test_each_engine_of_a_case_has_its_figures(case: str, memory: pathlib.Path) -> None:
    engines = ["nowait-host", "to_thread"]
    words = [word for name in engines for word in ("--engine", name)]
    ended = bench("--case", case, *words, "--folder", str(memory), "--json", str(memory / "json"))
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    rows = json.loads((memory / "json").read_text())["rows"]
    assert {row["engine"] for row in rows} == set(engines)
    assert {row["metric"] for row in rows} >= {"loop_held_up_ms_max"}
    assert all(len(row["runs"]) == 3 and row["median"] > 0 for row in rows)
    assert list(memory.iterdir()) == [memory / "json"], "what was read is gone"


NEEDED = [DIST / name for name in ("bin/nowait", "lib/libnowait.so", "include/nowait.h")]


@pytest.mark.skipif(
    not all(path.exists() for path in NEEDED) or shutil.which("cc") is None,
    reason="NOWAIT_DIST names no dist/, or there is no C compiler",
)
def test_the_c_api_is_a_peer(disk: pathlib.Path) -> None:
    program, lib = disk / "read_random", DIST / "lib"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-I", DIST / "include", "-L", lib]
    flags += [f"-Wl,-rpath,{lib}", "-lnowait"]
    subprocess.run(["cc", SOURCE, "-o", program, *flags], check=True, timeout=120)
    words = ["--case", "uncached-64", "--engine", "nowait-host", "--c-api", str(program)]
    ended = bench(*words, "--folder", str(disk), "--json", str(disk / "json"))
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    rows = json.loads((disk / "json").read_text())["rows"]
    rates = {row["engine"]: row["runs"] for row in rows if row["metric"] == "iops"}
    assert set(rates) == {"nowait-host", "c-api-host", "c-api-user"}
    assert all(len(runs) == 3 for runs in rates.values())
    assert "no loop" in ended.stdout


def test_a_round_has_a_process_of_its_own_and_its_failure_is_told() -> None:
    async def process() -> int:
        return os.getpid()

    async def fail() -> None:
        raise OSError("no such device")

    async def vanish() -> None:
        os._exit(3)

    assert run_in_process(process) not in (os.getpid(), run_in_process(process))
    with pytest.raises(RuntimeError, match="^OSError: no such device$"):
        run_in_process(fail)
    with pytest.raises(RuntimeError, match="ended early"):
        run_in_process(vanish)


def test_a_c_program_that_is_not_there_is_told_of() -> None:
    ended = bench("--case", "uncached-64", "--c-api", "/nonexistent/read_random")
    assert ended.returncode == 2 and "compile python/bench/read_random.c" in ended.stderr
    ended = bench("--case", "lines", "--c-api", "/bin/true")
    assert ended.returncode == 2 and "only the case uncached-64" in ended.stderr
