"""Pages in a headless Chromium, and all that they say and ask for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NEEDS_CHROMIUM = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: scripts/install-browser installs Debian's"),
]
PHONE, DESK = 390, 1280


@dataclass
class Opened:
    """A page, and all that it said and asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@contextmanager
def running() -> Iterator[Browser]:
    """A browser; without Playwright the test is skipped."""
    driver = pytest.importorskip("playwright.sync_api", reason="no Playwright here: it comes with the extra 'dev'")
    with driver.sync_playwright() as started:
        # Chromium's sandbox needs rights that root in a container does not have.
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Browser, path: Path, width: int = DESK, fragment: str = "", **more: Any) -> Opened:
    """Open the page of a file."""
    page = browser.new_page(viewport={"width": width, "height": 900}, **more)
    found = Opened(page)
    page.on("console", lambda message: found.said.append(message.text))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.on("dialog", lambda dialog: found.said.append(dialog.message))
    page.on("request", lambda request: found.asked.append(request.url))
    page.goto(path.as_uri() + (f"#{fragment}" if fragment else ""))
    return found


def accessible(page: Page) -> None:
    """Fail with the report of axe if it finds anything."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe here: it comes with 'dev'")
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
