"""One browser for all tests that need a real one; they are skipped where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.reporting.browser import Browser, BrowserError, Tab, find_browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium or Chrome here: what a page does in a browser is not tested")
    started = Browser(program, tmp_path_factory.mktemp("profile"))
    try:
        started.call("Browser.getVersion")
    except (BrowserError, OSError) as error:
        started.process.kill()
        started.process.wait()
        pytest.skip(f"{program} cannot be driven here ({error})")
    yield started
    started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Tab]]:
    tabs: list[Tab] = []

    def open_it(path: Path, **look: object) -> Tab:
        tabs.append(browser.open(path, **look))
        return tabs[-1]

    yield open_it
    for tab in tabs:
        tab.close()
