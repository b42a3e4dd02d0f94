"""The page of a report in a real browser: it asks nothing of anybody, sorts, filters, tells, and is accessible."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.chromium import DESK, NEEDS_CHROMIUM, PHONE, accessible, opened, running
from tests.report_samples import HOSTILE, LARGE, SMALL, studied

import rooflens as rl

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = NEEDS_CHROMIUM
AT_MOST = 25_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    path = folder / "report.html"
    text = SMALL.replace("'A made-up study'", f"'''{HOSTILE}'''")
    rl.study_report(studied(folder, text).path, path)
    return path


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    found = opened(browser, report).page
    yield found
    found.close()


def results(page: Page) -> Locator:
    return page.locator("#table-results")


def column(page: Page, header: str) -> list[str]:
    """The cells of a column of the results that are shown."""
    heads = [text.strip() for text in results(page).locator("thead th").all_inner_texts()]
    cells = results(page).locator(f"tbody tr:not([hidden]) td:nth-child({heads.index(header) + 1})")
    return cells.all_inner_texts()


def seconds(text: str) -> float:
    number, unit = text.removeprefix("~ ").split()
    return float(number) * {"s": 1.0, "ms": 1e-3, "us": 1e-6}[unit]


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_it_says_nothing_and_asks_nobody(browser: Browser, report: Path, width: int) -> None:
    found = opened(browser, report, width)
    found.page.mouse.wheel(0, 4000)
    assert found.said == []
    assert [url for url in found.asked if not url.startswith("data:")] == [report.as_uri()]
    # The words of others are words: neither a script nor an element.
    assert found.page.locator("h1").inner_text() == HOSTILE
    # No part of it is wider than the screen, but for tables, which scroll inside of their frames.
    assert found.page.evaluate("document.documentElement.scrollWidth") == width
    found.page.close()


def test_a_header_sorts_by_value_and_unknown_comes_last(page: Page) -> None:
    head = results(page).locator("thead th", has_text="measured")
    assert head.get_attribute("aria-sort") == "none"
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    shown = column(page, "measured")
    known = [seconds(text) for text in shown if text != "-"]
    # The two measurements that failed have no time.
    assert shown[-2:] == ["-", "-"]
    assert len(known) == len(shown) - 2
    assert known == sorted(known)
    assert known[0] < 1e-3 < known[-1]  # so that text would be in another order
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    shown = column(page, "measured")
    assert [seconds(text) for text in shown[:-2]] == sorted(known, reverse=True)
    assert shown[-2:] == ["-", "-"]


def test_the_keyboard_sorts_and_shows_where_it_is(page: Page) -> None:
    button = results(page).locator("thead th", has_text="batch").get_by_role("button")
    results(page).get_by_label("Filter").press("Tab")
    for _ in range(40):
        if button.evaluate("each => each === document.activeElement"):
            break
        page.keyboard.press("Tab")
    assert button.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    batches = [int(text) for text in column(page, "batch")]
    assert batches == sorted(batches)
    assert batches[0] == 1


def test_words_and_choices_filter(page: Page) -> None:
    field = results(page).get_by_label("Filter")
    field.fill("alexnet T4")
    # 3 batches of inference on a T4: the fourth is excluded.
    assert column(page, "model") == ["alexnet"] * 3
    assert column(page, "device") == ["tesla-t4"] * 3
    assert results(page).locator("output").inner_text() == "3 of 50 rows"
    field.fill("")
    results(page).get_by_label("mode: ").select_option("train")
    assert set(column(page, "mode")) == {"train"}
    assert len(column(page, "mode")) == 2 * 2 * 3  # models, devices; forward, backward and the whole
    results(page).get_by_label("phase: ").select_option("backward")
    assert len(column(page, "mode")) == 4


def test_a_wide_table_begins_with_what_matters_most(page: Page) -> None:
    head = results(page).locator("thead th", has_text="whole-model roofline")
    assert head.is_hidden()
    assert results(page).locator("thead th", has_text="efficiency").is_visible()
    results(page).get_by_role("button", name="All columns").click()
    assert head.is_visible()
    results(page).get_by_role("button", name="Fewer columns").click()
    assert head.is_hidden()


@pytest.mark.parametrize("width", [1440, 1000])
def test_no_table_of_a_desk_is_cut(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.locator("details").evaluate_all("all => all.forEach(each => { each.open = true; })")
    page.wait_for_timeout(100)
    cut = "boxes => boxes.filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.ariaLabel)"
    assert page.locator(".scroll").evaluate_all(cut) == []
    assert "more)" in results(page).get_by_role("button", name="All columns").inner_text()


def test_a_mark_tells_what_it_is(page: Page) -> None:
    tip = page.locator("#tip")
    assert tip.is_hidden()
    figure = page.locator("#figure-latency-flops")
    mark = figure.locator("use[data-t]").first
    mark.scroll_into_view_if_needed()
    mark.hover(force=True)
    assert "resnet18" in tip.inner_text()
    assert "FLOP: 3.001 GFLOP" in tip.inner_text()
    page.mouse.move(2, 2)
    assert tip.is_hidden()
    # The same by keyboard.
    figure.locator("> svg").focus()
    page.keyboard.press("ArrowRight")
    first = tip.inner_text()
    assert "resnet18" in first
    page.keyboard.press("ArrowRight")
    assert tip.inner_text() != first
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_folds_open_and_print_leaves_out_what_paper_cannot_do(page: Page) -> None:
    assert page.locator("#table-modules-1").is_hidden()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#table-modules-1").is_visible()
    assert page.locator("nav").is_hidden()
    assert results(page).get_by_label("Filter").is_hidden()
    assert page.locator("#figure-latency-flops").is_visible()
    # 182 mm of an A4 page between its margins are 688 pixels: no value is parted from its unit, no table is cut.
    page.set_viewport_size({"width": 688, "height": 970})
    lines, widths = page.evaluate(
        """() => {
          const lines = [...document.querySelectorAll(".block:not(.across) tr:not([hidden]) td.n")].map((cell) => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            return [cell.innerText, new Set([...range.getClientRects()].map((line) => line.top)).size];
          });
          const tables = [...document.querySelectorAll(".block:not(.across) table")];
          return [lines, tables.map((table) => table.getBoundingClientRect().right)];
        }"""
    )
    assert any("\N{NO-BREAK SPACE}ms" in text for text, _ in lines)
    assert [text for text, rows in lines if rows > 1 and " " not in text] == []
    assert max(widths) <= 688.5


def test_all_is_there_without_a_script(browser: Browser, report: Path) -> None:
    page = opened(browser, report, java_script_enabled=False).page
    rows = page.locator("#table-results tbody tr")
    assert rows.count() == 50
    assert rows.last.is_visible()
    assert page.locator("#figure-roofline svg use").first.is_visible()
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(DESK, "light"), (DESK, "dark"), (PHONE, "light")])
def test_it_is_accessible(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    few = SMALL.replace('"vgg11", "mobilenet_v2", "squeezenet1_0"', '"vgg11"').replace("[1, 4, 16, 64]", "[16, 64]")
    path = tmp_path / "report.html"
    rl.study_report(studied(tmp_path, few).path, path)
    page = opened(browser, path, width, color_scheme=scheme).page
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    accessible(page)
    page.close()


def test_two_thousand_cases_are_one_page_of_bounded_size(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    report = rl.study_report(studied(tmp_path, LARGE).path, path)
    (rows,) = (listed.table.rows for listed in report.tables if listed.key == "results")
    assert len(rows) == 2000
    assert path.stat().st_size < AT_MOST
    found = opened(browser, path)
    assert found.said == []
    page = found.page
    assert len(column(page, "model")) == 60
    results(page).get_by_role("button", name="Show all 2000 rows").click()
    assert page.locator("#table-results tbody tr:not([hidden])").count() == 2000
    page.close()
