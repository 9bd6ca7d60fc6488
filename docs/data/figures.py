#!/usr/bin/env python3
"""Write the tables of docs/*.md from the data files beside this program.

    figures.py                               write the tables
    figures.py --check                       fail if a page holds another figure than the files
    figures.py --keep REPORT.json NAME NOTE  make NAME.json of what `nowait bench --json` wrote

NAME.json has the medians and intervals of REPORT.json, not the single runs, one case a line. NOTE
says what the report does not: command and commit.

A table follows a comment that names its file, its rows and its columns. Rows and columns may go on
in further lines, indented. `LABEL = NAME` shows LABEL for what the file calls NAME.

    <!-- data/submit.json                        <!-- data/serve.csv
    rows: a; b: mixed = b                        rows: nowait, NBD = nowait; file
    columns: case; IOPS = system → nowait iops   columns: server; 4 KiB reads
    -->                                          -->

A row of a JSON file is a case. Its columns are `ENGINE METRIC`, `ENGINE → ENGINE METRIC`, or
`ENGINE / ENGINE METRIC`, the ratio of the first to the second. A row of a CSV file (figures until
November 2026) is named by its first cell or the first two, a column by the header.
"""

import csv
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

DATA = Path(__file__).parent
DOCS = DATA.parent
TABLE = re.compile(r"(<!-- (data/\S+\.(?:csv|json))\n((?:(?!-->).*\n)*)-->\n\n)(?:\|.*\n)*")
SCALES = {
    "us": [(1, "µs"), (1e3, "ms"), (1e6, "s")],
    "B": [(1, "B"), (2**10, "KiB"), (2**20, "MiB"), (2**30, "GiB")],
    "B/s": [(2**20, "MiB/s"), (2**30, "GiB/s")],
    "1/s": [(1, "/s"), (1e3, "k/s")],
}

# The cells of a row after its label, by the names of the columns.
Cells = Callable[[list[str]], list[str]]


def digits(value: float) -> str:
    """Return a number with three digits.

    >>> [digits(value) for value in (0, 0.0123, 1, 9.999, 74.34, 462.2, 123456)]
    ['0', '0.0123', '1.00', '10.0', '74.3', '462', '123456']
    """
    if value == 0:
        return "0"
    exponent = int(f"{value:.2e}".partition("e")[2])
    return f"{value:.{max(0, 2 - exponent)}f}"


def quantity(value: float, unit: str) -> str:
    """Return a number with its unit.

    >>> quantity(17474.5, "1/s"), quantity(2250, "us"), quantity(1.89e9, "B/s"), quantity(3, "1")
    ('17.5 k/s', '2.25 ms', '1.76 GiB/s', '3.00')
    """
    scales = SCALES.get(unit, [(1, "" if unit == "1" else unit)])
    factor, name = next((scale for scale in reversed(scales) if value >= scale[0]), scales[0])
    number = digits(value / factor)
    return f"{number}{name}" if name == "/s" else f"{number} {name}".rstrip()


def interval(median: float, low: float, high: float) -> str:
    """Return a ratio with its interval.

    >>> interval(1.0021, 0.8818, 1.0547)
    '1.00 [0.88 – 1.05]'
    """
    return f"{median:.2f} [{low:.2f} – {high:.2f}]"


def cell(report: dict, case: str, column: str) -> str:
    """Return the cell of a case that a column describes.

    >>> report = {"units": {"iops": "1/s"}, "cases": {"a": {
    ...     "engines": {"x": {"iops": [2e3, 1e3, 3e3]}, "y": {"iops": [4e3, 3e3, 5e3]}},
    ...     "ratios": {"y / x": {"iops": [2, 1.5, 2.5]}}}}}
    >>> [cell(report, "a", name) for name in ("x iops", "x → y iops", "y / x iops")]
    ['2.00 k/s', '2.00 → 4.00 k/s', '2.00 [1.50 – 2.50]']
    """
    subject, _, metric = column.rpartition(" ")
    if " / " in subject:
        return interval(*report["cases"][case]["ratios"][subject][metric])
    engines, unit = report["cases"][case]["engines"], report["units"][metric]
    shown = [quantity(engines[name][metric][0], unit) for name in subject.split(" → ")]
    numbers, units = zip(*(text.partition(" ")[::2] for text in shown), strict=True)
    return " → ".join(numbers) + " " + units[0] if len(set(units)) == 1 else " → ".join(shown)


def without(values: dict, *names: str) -> dict:
    """Return the values that have another name."""
    return {name: value for name, value in values.items() if name not in names}


def kept(report: dict, note: str) -> dict:
    """Return what is kept of a report: no single runs, and nothing about each case or process."""
    cases: dict[str, dict] = {}
    for row in report["rows"]:
        case = cases.setdefault(row["case"], {"engines": {}, "ratios": {}})
        engine = case["engines"].setdefault(row["engine"], {})
        engine[row["metric"]] = [row["median"], row["min"], row["max"]]
    for ratio in report["ratios"]:
        pair = cases[ratio["case"]]["ratios"].setdefault(f"{ratio['b']} / {ratio['a']}", {})
        pair[ratio["metric"]] = [ratio["median"], ratio["low"], ratio["high"]]
    return {
        "workload": report["workload"],
        "note": note,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(report["host"]["unix_time_s"])),
        "host": without(report["host"], "state", "unix_time_s"),
        "params": without(report["params"], "cases", "library_reports"),
        "notes": report["notes"],
        "partial": report["partial"],
        "units": {row["metric"]: row["unit"] for row in report["rows"]},
        "verdicts": report["verdicts"],
        "cases": cases,
    }


def lines_of(value: dict) -> str:
    """Return JSON whose first two levels have a line each: small, and readable as a difference."""

    def short(part: object) -> str:
        return json.dumps(rounded(part), ensure_ascii=False)

    def level(part: object) -> str:
        if isinstance(part, list) and part:
            return "[\n" + ",\n".join(f"  {short(item)}" for item in part) + "\n]"
        if isinstance(part, dict) and part:
            items = (f"  {short(name)}: {short(item)}" for name, item in part.items())
            return "{\n" + ",\n".join(items) + "\n}"
        return short(part)

    parts = (f"{short(name)}: {level(part)}" for name, part in value.items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def rounded(value: object) -> object:
    """Return the value with four digits of each fraction in it.

    >>> rounded({"a": [17474.525475, 0.88188854, 3]})
    {'a': [17470, 0.8819, 3]}
    """
    match value:
        case float():
            short = float(f"{value:.4g}")
            return int(short) if short.is_integer() else short
        case list():
            return [rounded(item) for item in value]
        case dict():
            return {name: rounded(item) for name, item in value.items()}
    return value


def keep(path: str, name: str, note: str) -> None:
    """Make the data file of a report."""
    report = json.loads(Path(path).read_text())
    (DATA / f"{name}.json").write_text(lines_of(kept(report, note)))


def of_json(path: Path, row: str) -> tuple[str, Cells] | None:
    """Return the label and the cells of a case."""
    report = json.loads(path.read_text())
    if row not in report["cases"]:
        return None
    return row, lambda columns: [cell(report, row, column) for column in columns]


def of_csv(path: Path, row: str) -> tuple[str, Cells] | None:
    """Return the label and the cells of a record."""
    with path.open(newline="") as file:
        header, *records = csv.reader(line for line in file if not line.startswith("#"))
    found = (record for record in records if row in (record[0], ": ".join(record[:2])))
    record = next(found, None)
    if record is None:
        return None
    return record[0], lambda columns: [record[header.index(column)] for column in columns]


def labels(line: str) -> list[tuple[str, str]]:
    """Return the labels and names of a list.

    >>> labels("case; IOPS = system iops")
    [('case', 'case'), ('IOPS', 'system iops')]
    """
    pairs = (part.strip().rpartition(" = ") for part in line.split(";"))
    return [(label or name, name) for label, _, name in pairs]


def line_of(cells: list[str]) -> str:
    """Return a line of a table."""
    return "| " + " | ".join(cells) + " |\n"


def table(match: re.Match[str]) -> str:
    """Return a comment and the table that it describes."""
    comment, file, text = match.groups()
    read = of_json if file.endswith(".json") else of_csv
    wanted = dict(line.split(": ", 1) for line in text.replace("\n  ", " ").splitlines())
    columns = labels(wanted["columns"])
    shown = [line_of([label for label, _ in columns]), "|---" * len(columns) + "|\n"]
    for label, name in labels(wanted["rows"]):
        found = read(DOCS / file, name)
        if found is None:
            sys.exit(f"{file} has no row {name}")
        own, cells = found
        others = cells([column for _, column in columns[1:]])
        shown.append(line_of([label if label != name else own, *others]))
    return comment + "".join(shown)


def main() -> None:
    """Keep a report, or write or check the tables."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--keep"]:
        keep(*arguments[1:])
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        made = TABLE.sub(table, text)
        if made == text:
            continue
        if arguments == ["--check"]:
            sys.exit(f"{page}: a table differs from its data file; run docs/data/figures.py")
        page.write_text(made)


if __name__ == "__main__":
    main()
