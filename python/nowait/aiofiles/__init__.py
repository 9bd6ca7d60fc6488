"""A replacement for aiofiles: ``import nowait.aiofiles as aiofiles``.

nowait opens the files, in the kernel's cache. Files that nowait does not open (descriptors, pipes,
terminals, files with an ``opener``), temporary files, and the functions of ``aiofiles.os`` are
calls on threads, as in aiofiles.
"""

from __future__ import annotations

from . import os, ospath, tempfile, threadpool
from .threadpool import open, stderr, stderr_bytes, stdin, stdin_bytes, stdout, stdout_bytes

__all__ = [
    "open",
    "os",
    "ospath",
    "stderr",
    "stderr_bytes",
    "stdin",
    "stdin_bytes",
    "stdout",
    "stdout_bytes",
    "tempfile",
    "threadpool",
]
