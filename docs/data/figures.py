#!/usr/bin/env python3
"""Write the tables of docs/benchmarks.md from the data files beside this program.

A table follows a comment that names its file, its rows by their first cell or the first two, and
its columns:

    <!-- data/serve.csv
    rows: nowait, NBD = nowait; file = host-file
    columns: server; 4 KiB reads; 4 KiB writes = writes
    -->

Rows and columns may go on in further lines, indented. `LABEL = NAME` shows LABEL for what the file
calls NAME. Without an argument the program writes the tables; with --check it fails if the page
holds another figure than the files.
"""

import csv
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent
PAGE = DOCS / "benchmarks.md"
TABLE = re.compile(r"(<!-- (data/\S+\.csv)\n((?:(?!-->).*\n)*)-->\n\n)(?:\|.*\n)*")


def labels(line: str) -> list[tuple[str, str]]:
    """Return the labels and names of a list."""
    pairs = (part.strip().rpartition(" = ") for part in line.split(";"))
    return [(label or name, name) for label, _, name in pairs]


def records(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the records of a data file."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(line for line in file if not line.startswith("#"))
    return header, rows


def line_of(cells: list[str]) -> str:
    """Return a line of a table."""
    return "| " + " | ".join(cells) + " |\n"


def table(match: re.Match[str]) -> str:
    """Return a comment and the table that it describes."""
    comment, file, text = match.groups()
    header, rows = records(DOCS / file)
    lines = text.replace("\n  ", " ").splitlines()
    wanted = dict(line.split(": ", 1) for line in lines)
    columns = labels(wanted["columns"])
    places = [header.index(name) for _, name in columns]
    shown = [line_of([label for label, _ in columns]), "|---" * len(columns) + "|\n"]
    for label, name in labels(wanted["rows"]):
        record = next((row for row in rows if name in (row[0], ": ".join(row[:2]))), None)
        if record is None:
            sys.exit(f"{PAGE}: {file} has no row {name}")
        cells = [record[place] for place in places]
        shown.append(line_of([label if label != name else cells[0], *cells[1:]]))
    return comment + "".join(shown)


def main() -> None:
    """Write or check the tables."""
    text = PAGE.read_text()
    made = TABLE.sub(table, text)
    if sys.argv[1:] == ["--check"]:
        if made != text:
            sys.exit(f"{PAGE}: a table differs from its data file; run docs/data/figures.py")
    else:
        PAGE.write_text(made)


if __name__ == "__main__":
    main()
