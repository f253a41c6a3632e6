"""Fixtures of pytest; in conftest.py: `pytest_plugins = ["zonemta_py.plugin.testing.fixtures"]`.

    async def test_links(start_mta):
        mta = await start_mta("links.py", options={"domain": "news.example.com"})

Needs pytest and pytest-asyncio, which the server itself does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest_asyncio

from zonemta_py.plugin.testing.mta import Mta, running

StartMta = Callable[..., Awaitable[Mta]]


@pytest_asyncio.fixture
async def start_mta() -> AsyncIterator[StartMta]:
    """`await start_mta(…)`: as `running`; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def start(*plugins: str | Path, **more: Any) -> Mta:
            return await stack.enter_async_context(running(*plugins, **more))

        yield start
