"""Takes the place of aiofiles: ``import nowait.aiofiles as aiofiles``.

Files are those of nowait, in the kernel's cache. What nowait does not open (descriptors, pipes,
terminals, files with an ``opener``), temporary files, and what ``aiofiles.os`` has are calls on
threads, as in aiofiles.
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
