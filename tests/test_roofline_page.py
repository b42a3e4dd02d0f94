"""The page of a roofline in a real browser: it fits a phone and a desk, its legend switches, a zoom has ticks."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.figure_samples import chain, device, measured, records

import rooflens as rl
from rooflens.records import Case

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: scripts/install-browser installs Debian's"),
]


_EDGES = (
    "texts => texts.map(text => [text.getBoundingClientRect(), text.textContent]).map(([b, t]) => [b.left, b.right, t])"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    driver = pytest.importorskip("playwright.sync_api", reason="no Playwright here: it comes with the extra 'dev'")
    with driver.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    items = []
    for n, model in enumerate(("small</script>\x1b", "a_network_with_a_rather_long_name", "third")):
        for batch in (1, 16):
            case = Case(model=model, device="toy-100", batch=batch, mode="inference")
            items += [*chain(case, 1, scale=batch * 4.0**-n), measured(case, batch * 4.0**-n * 1e-3)]
    path = tmp_path_factory.mktemp("page") / "roofline.html"
    return rl.roofline(records(items, [device()]), by="model").save(path).as_uri()


@pytest.fixture(scope="module")
def page(browser: Browser, address: str) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(address)
    yield page
    page.close()


@pytest.mark.parametrize("width", [1440, 1000, 760, 390, 320])
def test_a_page_fills_its_window_and_no_more(page: Page, address: str, width: int) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    plane = page.locator(".nsewdrag").first.bounding_box()
    assert plane is not None
    narrow = width < 800
    # Beside the plane: ticks, and in a wide window labels and the legend.
    assert plane["width"] > 0.55 * min(width, 620 if narrow else 1000)
    assert page.locator(".keys").is_visible() == narrow
    assert page.locator("g.legend").count() == (0 if narrow else 1)
    for box in page.locator(".ytick text, .xtick text, .annotation-text").evaluate_all(_EDGES):
        assert box[0] >= 0, box
        assert box[1] <= width, box
    assert asked == []


def test_the_legend_of_a_phone_switches_groups_and_a_zoom_has_ticks(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    shown = page.locator(".scatterlayer .trace").count()
    button = page.get_by_role("button", name="rather_long")
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert page.locator(".scatterlayer .trace").count() < shown
    button.click()
    assert page.locator(".scatterlayer .trace").count() == shown
    page.evaluate("Plotly.relayout('roofline', {'xaxis.range': [2, 2.9], 'yaxis.range': [12, 14]})")
    texts = [text for text in page.locator(".xtick text").all_text_contents() if text]
    assert texts == ["100", "200", "500"]
    assert "10 TFLOP/s" in page.locator(".ytick text").all_text_contents()
