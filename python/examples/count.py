"""Counts the lines of files that contain a word: ``python count.py WORD FILE…``"""

from __future__ import annotations

import asyncio
import sys

import nowait


async def count(word: str, path: nowait.Path) -> int:
    """Return how many lines of a file contain ``word``."""
    found = 0
    async with path.open("r", errors="replace") as file:
        async for line in file:
            found += word in line
    return found


async def main(word: str, names: list[str]) -> None:
    """Print a count for each file; many files are read concurrently."""
    paths = [nowait.Path(name) for name in names]
    counts = await asyncio.gather(*(count(word, path) for path in paths))
    for path, found in zip(paths, counts):
        print(f"{path}: {found}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
