"""A plugin of pytest: code that imports aiofiles gets nowait.aiofiles."""

import sys

import nowait.aiofiles
import nowait.aiofiles.base
import nowait.aiofiles.threadpool.binary
import nowait.aiofiles.threadpool.text

OURS = "nowait.aiofiles"
for name, module in list(sys.modules.items()):
    if name == OURS or name.startswith(OURS + "."):
        sys.modules["aiofiles" + name.removeprefix(OURS)] = module
