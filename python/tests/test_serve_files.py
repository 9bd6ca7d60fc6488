"""The example that serves files: a real server, asked by a real client."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import uvicorn

EXAMPLE = pathlib.Path(__file__).parent.parent / "examples" / "serve_files.py"
CONTENT = bytes(range(251)) * 8000  # some chunks, and a part of one


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client with its own server, one for all tests: they change no file."""
    spec = importlib.util.spec_from_file_location("serve_files", EXAMPLE)
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    folder = tmp_path_factory.mktemp("folder")
    (folder / "served").mkdir()
    (folder / "served/data.bin").write_bytes(CONTENT)
    (folder / "served/empty.txt").write_bytes(b"")
    (folder / "secret").write_text("not for all")
    config = uvicorn.Config(example.application(str(folder / "served")), port=0, log_level="error")
    server, listens = uvicorn.Server(config), config.bind_socket()
    listens.listen(config.backlog)
    thread = threading.Thread(target=server.run, args=([listens],))
    thread.start()
    port = listens.getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/files", timeout=60) as client:
        yield client
    server.should_exit = True
    thread.join(60)
    assert not thread.is_alive()


def test_a_file_is_served_with_its_type(client: httpx.Client) -> None:
    answer = client.get("data.bin")
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert answer.headers["content-type"] == "application/octet-stream"
    empty = client.get("empty.txt")
    assert (empty.status_code, empty.content) == (200, b"")
    assert empty.headers["content-type"] == "text/plain"


@pytest.mark.parametrize(
    "wanted, part",
    [
        ("bytes=0-0", slice(0, 1)),
        ("bytes=5-300000", slice(5, 300_001)),
        ("bytes=1000000-", slice(1_000_000, None)),
        ("bytes=-7", slice(-7, None)),
        ("bytes=2000000-99999999", slice(2_000_000, None)),
    ],
)
def test_a_range_is_a_part_of_it(client: httpx.Client, wanted: str, part: slice) -> None:
    answer = client.get("data.bin", headers={"range": wanted})
    assert (answer.status_code, answer.content) == (206, CONTENT[part])
    first, last, _ = part.indices(len(CONTENT))
    assert answer.headers["content-range"] == f"bytes {first}-{last - 1}/{len(CONTENT)}"


@pytest.mark.parametrize("wanted", ["bytes=2008000-", "bytes=-", "bytes=5-3", "lines=1-2"])
def test_a_range_that_there_is_not_is_refused(client: httpx.Client, wanted: str) -> None:
    assert client.get("data.bin", headers={"range": wanted}).status_code == 416


@pytest.mark.parametrize("path", ["none", "", "%2e%2e/secret", "../secret"])
def test_nothing_but_files_of_the_folder_is_served(client: httpx.Client, path: str) -> None:
    assert client.get(f"{client.base_url}{path}").status_code == 404


def test_clients_are_served_side_by_side_and_may_leave(client: httpx.Client) -> None:
    def fetch(at: int) -> bytes:
        if at % 3 == 0:
            with client.stream("GET", "data.bin") as answer:
                return next(answer.iter_raw(1000))
        return client.get("data.bin").content

    with ThreadPoolExecutor(8) as pool:
        fetched = list(pool.map(fetch, range(30)))
    assert fetched == [CONTENT[:1000] if at % 3 == 0 else CONTENT for at in range(30)]


def test_it_is_measured_beside_starlettes_own(tmp_path: pathlib.Path) -> None:
    script = EXAMPLE.with_name("measure_serving.py")
    words = [sys.executable, str(script), "--quick", "--folder", str(tmp_path)]
    # A script imports the module beside it, unless PYTHONSAFEPATH is set.
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONSAFEPATH"}
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    for server in ("nowait", "StaticFiles"):
        rows = [line.split() for line in ended.stdout.splitlines() if line.startswith(server)]
        assert len(rows) == 3 and all(int(row[1].replace(",", "")) > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []
