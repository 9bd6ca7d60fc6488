"""Functions of ``os``, each call on a thread."""

from __future__ import annotations

import os

from . import ospath as path
from .base import wrap

__all__ = [
    "access",
    "getcwd",
    "link",
    "listdir",
    "makedirs",
    "mkdir",
    "path",
    "readlink",
    "remove",
    "removedirs",
    "rename",
    "renames",
    "replace",
    "rmdir",
    "scandir",
    "sendfile",
    "stat",
    "statvfs",
    "symlink",
    "unlink",
    "wrap",
]

access = wrap(os.access)
getcwd = wrap(os.getcwd)
link = wrap(os.link)
listdir = wrap(os.listdir)
makedirs = wrap(os.makedirs)
mkdir = wrap(os.mkdir)
readlink = wrap(os.readlink)
remove = wrap(os.remove)
removedirs = wrap(os.removedirs)
rename = wrap(os.rename)
renames = wrap(os.renames)
replace = wrap(os.replace)
rmdir = wrap(os.rmdir)
scandir = wrap(os.scandir)
sendfile = wrap(os.sendfile)
stat = wrap(os.stat)
statvfs = wrap(os.statvfs)
symlink = wrap(os.symlink)
unlink = wrap(os.unlink)
