"""A plugin of pytest: aiofile opens its files with nowait, in the loop of pytest-asyncio."""

from __future__ import annotations

import asyncio

import nowait.caio
import pytest_asyncio

nowait.caio.install()


@pytest_asyncio.fixture
async def event_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
