"""Packages that read tables through fsspec: pyarrow, pandas and dask, on files of nowait."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest
from nowait.fsspec import FileSystem

# These packages are not available for every Python version.
for name in ("dask", "numpy", "pandas", "pyarrow"):
    pytest.importorskip(name)

import dask
import dask.array
import dask.bag
import dask.dataframe
import numpy
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet

fsspec.register_implementation("nowait", FileSystem)

# pandas gives this warning about calls that dask makes.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")

NUMBERS = numpy.arange(100_000, dtype="int64")


@pytest.fixture
def table() -> pyarrow.Table:
    return pyarrow.table({"number": NUMBERS, "text": [f"row {at}" for at in NUMBERS]})


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Methods of the file system by which a package reads and writes."""
    seen: list[str] = []
    for name in ("_cat_file", "_cat_ranges", "_pipe_file", "open"):
        method = getattr(FileSystem, name)

        def noted(*arguments: Any, _name: str = name, _method: Any = method, **options: Any) -> Any:
            seen.append(_name)
            return _method(*arguments, **options)

        monkeypatch.setattr(FileSystem, name, noted)
    return seen


@pytest.fixture(params=["synchronous", "threads"])
def scheduler(request: pytest.FixtureRequest) -> Iterator[None]:
    """Dask runs tasks in the calling thread, and on several that share the file system."""
    with dask.config.set(scheduler=request.param):
        yield


def test_pyarrow_writes_and_reads_a_table(
    disk: pathlib.Path, table: pyarrow.Table, calls: list[str]
) -> None:
    fs = FileSystem()
    path = f"{disk}/table.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=10_000, filesystem=fs)
    assert calls and pyarrow.parquet.read_table(path).equals(table), "what others read"
    calls.clear()
    assert pyarrow.parquet.read_table(path, filesystem=fs).equals(table)
    some = pyarrow.parquet.read_table(
        path, columns=["number"], filters=[("number", ">=", 95_000)], filesystem=fs
    )
    assert calls and some.column("number").to_pylist() == list(range(95_000, 100_000))


def test_pyarrow_reads_a_folder_of_files(disk: pathlib.Path, table: pyarrow.Table) -> None:
    fs = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(FileSystem()))
    for part in range(8):
        rows = table.slice(part * 12_500, 12_500)
        fs.create_dir(f"{disk}/parts/{part}")
        pyarrow.parquet.write_table(rows, f"{disk}/parts/{part}/rows.parquet", filesystem=fs)
    parts = pyarrow.dataset.dataset(f"{disk}/parts", filesystem=fs, format="parquet")
    assert len(parts.files) == 8
    assert parts.to_table().sort_by("number").equals(table)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_pandas_writes_and_reads_by_the_name_of_the_protocol(
    disk: pathlib.Path, calls: list[str], kind: str
) -> None:
    frame = pandas.DataFrame({"number": NUMBERS[:5000], "square": NUMBERS[:5000] ** 2})
    url = f"nowait://{disk}/folder/frame.{kind}"
    options = {"index": False} if kind == "csv" else {}
    getattr(frame, f"to_{kind}")(url, **options)
    assert calls and (disk / f"folder/frame.{kind}").exists()
    calls.clear()
    pandas.testing.assert_frame_equal(getattr(pandas, f"read_{kind}")(url), frame)
    assert calls


def test_dask_reads_arrays_frames_and_lines(
    disk: pathlib.Path, calls: list[str], scheduler: None
) -> None:
    pytest.importorskip("zarr")  # dask stores arrays by it
    url = f"nowait://{disk}"
    numbers = NUMBERS[:90_000].reshape(300, 300)
    array = dask.array.from_array(numbers, chunks=(50, 70))
    array.to_zarr(f"{url}/array")
    assert (dask.array.from_zarr(f"{url}/array").T.compute() == numbers.T).all()
    assert {"_cat_file", "_pipe_file"} <= {*calls}
    frame = pandas.DataFrame({"number": NUMBERS[:9000], "kind": NUMBERS[:9000] % 7})
    dask.dataframe.from_pandas(frame, npartitions=6).to_parquet(f"{url}/frame")
    read = dask.dataframe.read_parquet(f"{url}/frame")
    assert read.npartitions == 6
    sums = read.groupby("kind").number.sum().compute().sort_index()
    assert sums.tolist() == frame.groupby("kind").number.sum().tolist()
    dask.bag.from_sequence(range(1000), npartitions=4).map(str).to_textfiles(f"{url}/text/*.txt")
    calls.clear()
    lines = dask.bag.read_text(f"{url}/text/*.txt")
    assert lines.map(int).sum().compute() == 499_500 and calls
