"""Measures `serve_files` beside Starlette's StaticFiles: ``python measure_serving.py [--quick]``

For each of both, a uvicorn server in a process of its own answers clients that request one file
after another on connections that stay open. The two servers take turns, round by round; the script
prints the medians.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import uvicorn
from serve_files import application
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

FILES = 64
CLIENTS = 32
# The bytes of each file, and True if the file is dropped from the page cache before a round.
CASES = {"4 KiB": (4 << 10, False), "1 MiB": (1 << 20, False), "1 MiB, uncached": (1 << 20, True)}


def starlette(folder: str) -> Starlette:
    return Starlette(routes=[Mount("/files", StaticFiles(directory=folder))])


SERVERS = {"nowait": application, "StaticFiles": starlette}


def serve(name: str, folder: str) -> None:
    """Serve a folder, and print the port."""
    config = uvicorn.Config(SERVERS[name](folder), port=0, log_level="error", access_log=False)
    listens = config.bind_socket()
    # Listen before the server's loop runs, so that clients that connect earlier wait and are not
    # refused.
    listens.listen(config.backlog)
    print(listens.getsockname()[1], flush=True)
    uvicorn.Server(config).run([listens])


async def client(port: int, size: int, numbers: list[int], took: list[float]) -> None:
    """Request files until the list is empty."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while numbers:
        begin = time.perf_counter()
        writer.write(f"GET /files/{numbers.pop()} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = f"content-length: {size}\r".encode()
        if not head.startswith(b"HTTP/1.1 200 ") or length not in head:
            raise OSError(f"the server said {head!r}")
        await reader.readexactly(size)
        took.append(time.perf_counter() - begin)
    writer.close()
    await writer.wait_closed()


async def one_round(port: int, folder: str, case: str, count: int) -> tuple[float, float]:
    """Return requests a second, and the 99th percentile of a request's time, in milliseconds."""
    size, uncached = CASES[case]
    for number in range(FILES if uncached else 0):
        fd = os.open(f"{folder}/{number}", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    numbers = [random.randrange(FILES) for _ in range(count)]
    took: list[float] = []
    begin = time.perf_counter()
    await asyncio.gather(*(client(port, size, numbers, took) for _ in range(CLIENTS)))
    rate = count / (time.perf_counter() - begin)
    return rate, sorted(took)[count * 99 // 100] * 1e3


def compare(case: str, folder: str, count: int, rounds: int) -> None:
    for number in range(FILES):
        with open(f"{folder}/{number}", "wb") as file:
            file.write(random.randbytes(CASES[case][0]))
            file.flush()
            os.fsync(file.fileno())
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in SERVERS}
    processes, ports = [], {}
    try:
        for name in SERVERS:
            words = [sys.executable, __file__, "--serve", name, "--folder", folder]
            process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            processes.append(process)
            assert process.stdout
            ports[name] = int(process.stdout.readline())
        for name, port in ports.items():
            asyncio.run(one_round(port, folder, case, CLIENTS))  # the first answers are slower
        for _ in range(rounds):
            for name, port in ports.items():
                figures[name].append(asyncio.run(one_round(port, folder, case, count)))
    finally:
        for process in processes:
            process.terminate()
            process.communicate()
    print(f"\n{case}: {count} requests of {CLIENTS} clients, median of {rounds} rounds by turns")
    print(f"{'server':14} {'requests/s':>12} {'p99, ms':>9}")
    for name, runs in figures.items():
        rate, slowest = (statistics.median(values) for values in zip(*runs, strict=True))
        print(f"{name:14} {rate:12,.0f} {slowest:9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=list(CASES), action="append", help="one of them only")
    parser.add_argument("--folder", default="/var/tmp", help="where the files are made")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller rounds")
    parser.add_argument("--serve", choices=list(SERVERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, options.folder)
    for case in options.case or CASES:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="nowait-serve-") as folder:
            small = CASES[case][0] < 1 << 20
            count = (256 if options.quick else 8192) // (1 if small else 4)
            compare(case, folder, count, 3 if options.quick else 9)


if __name__ == "__main__":
    main()
