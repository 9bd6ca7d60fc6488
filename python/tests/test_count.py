"""The example of the tutorial that counts lines, run as a program."""

from __future__ import annotations

import pathlib
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).parent.parent / "examples" / "count.py"


def test_the_example_counts_lines_of_each_file(tmp_path: pathlib.Path) -> None:
    files = [tmp_path / name for name in ("many", "none")]
    files[0].write_text("a word here\nnothing\nanother word\n" * 1000)
    files[1].write_text("")
    command = [sys.executable, str(EXAMPLE), "word", *map(str, files)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == f"{files[0]}: 2000\n{files[1]}: 0\n"
