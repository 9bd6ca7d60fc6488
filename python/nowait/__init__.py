"""Files for asyncio and trio that do not block the event loop.

A read of cached data, of up to 256 KiB, is normally over before the ``await``. With io_uring, other
reads need no thread. ::

    import nowait

    async with nowait.open("notes.txt", "r") as file:
        async for line in file:
            print(line, end="")

    async with nowait.open("data.bin") as file:
        head = await file.read_at(4096, 0)
        parts = await file.read_many([(0, 512), (8192, 512)])

``backend()`` returns how the process submits requests, and why.
"""

from __future__ import annotations

import atexit
import os
from typing import NamedTuple

from . import _nowait
from ._buffer import AlignedBuffer
from ._file import CacheMode, File
from ._limits import InFlight, Limits, in_flight, limits
from ._nowait import Operation
from ._open import open
from ._path import Path
from ._stream import forget_all, save_all
from ._text import TextFile
from ._whole import copy, read_bytes, read_text, write_bytes, write_text

__all__ = [
    "AlignedBuffer",
    "Backend",
    "CacheMode",
    "File",
    "InFlight",
    "Limits",
    "Operation",
    "Path",
    "TextFile",
    "backend",
    "copy",
    "in_flight",
    "limits",
    "open",
    "read_bytes",
    "read_text",
    "write_bytes",
    "write_text",
]


class Backend(NamedTuple):
    """The backend of this process, the reason for it, and the default cache mode."""

    name: str
    """``uring``, ``kaio`` or ``threads``."""
    reason: str
    """The reason for this backend, in one line."""
    cache: str
    """The cache mode of files that are opened without one."""


def backend() -> Backend:
    """Return the backend of the process; start its engine if it does not run yet."""
    return Backend(*_nowait.backend())


os.register_at_fork(after_in_child=_nowait.after_fork)
os.register_at_fork(after_in_child=forget_all)
atexit.register(_nowait.shut_down)
atexit.register(save_all)  # which is called first
