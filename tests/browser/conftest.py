"""A real browser, where there is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from chromium import NAMES, Browser, find_chromium


@pytest.fixture(scope="session")
def _browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with Browser(program, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(_browser: Browser) -> Browser:
    """Its page, of a desk's size and light."""
    _browser.prefer("light")
    _browser.resize(1280, 800)
    return _browser
