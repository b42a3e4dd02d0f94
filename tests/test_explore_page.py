"""The page of `explore` in a real browser: all parts follow a choice, by mouse, keyboard and address."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.chromium import DESK, NEEDS_CHROMIUM, PHONE, accessible, opened, running
from tests.level_samples import cached, kernel
from tests.report_samples import HOSTILE, SMALL, studied

import rooflens as rl
from rooflens.results import RecordSet

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = NEEDS_CHROMIUM
EVERY = "batch=*&mode=*"
"""What the address says where the first choice is given up, but for the parts of steps."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as browser:
        yield browser


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> RecordSet:
    text = SMALL.replace('"squeezenet1_0"', f"'{HOSTILE}'")
    return studied(tmp_path_factory.mktemp("explored"), text).records()


@pytest.fixture(scope="module")
def path(records: RecordSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rl.explore(records, title=HOSTILE).save(tmp_path_factory.mktemp("page") / "page.html")


@pytest.fixture
def page(browser: Browser, path: Path) -> Iterator[Page]:
    found = opened(browser, path, fragment=EVERY)
    yield found.page
    found.page.close()
    assert found.said == []


def shown(page: Page) -> str:
    return page.locator("#shown").inner_text()


def column(page: Page, header: str, table: str = "#steps") -> list[str]:
    heads = [text.strip() for text in page.locator(f"{table} thead th").all_inner_texts()]
    cells = page.locator(f"{table} tbody td:nth-child({heads.index(header) + 1})").all_inner_texts()
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in cells]


def tick(page: Page, facet: str, value: str) -> None:
    page.get_by_role("group", name=facet, exact=True).get_by_role("checkbox", name=value).first.check()


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_it_asks_nobody_and_runs_no_text_of_a_file(browser: Browser, path: Path, width: int) -> None:
    found = opened(browser, path, width)
    assert found.said == []
    assert [url for url in found.asked if not url.startswith("data:")] == [path.as_uri()]
    assert found.page.locator("h1").inner_text() == HOSTILE
    assert found.page.evaluate("document.documentElement.scrollWidth") == width
    found.page.close()


def test_it_begins_with_steps_that_compare(browser: Browser, path: Path) -> None:
    """The last of the settings that most steps share, each of five models on two devices, but for alexnet at 16."""
    found = opened(browser, path)
    assert shown(found.page) == "10 rows of 50"
    told = "To begin with, the largest set whose steps compare: batch: 64; mode: inference"
    assert found.page.locator("#told").inner_text().startswith(told)
    assert found.page.get_by_role("group", name="Batch").get_by_role("checkbox", name="64").is_checked()
    found.page.get_by_role("button", name="Show everything").click()
    assert shown(found.page) == "50 rows of 50"
    everything = found.page.evaluate("location.hash").removeprefix("#")
    other = opened(browser, path, fragment=everything)
    assert shown(other.page) == "50 rows of 50"
    assert found.said == other.said == []
    found.page.close()
    other.page.close()


def test_every_part_follows_a_choice(page: Page) -> None:
    assert shown(page) == "42 rows of 50"  # 8 rows are phases of training
    tick(page, "Model", "resnet18")
    tick(page, "Batch", "16")
    assert shown(page) == "2 rows of 50"
    assert column(page, "device") == ["tesla-t4", "a100-sxm4-40gb"]
    # 17 us a sample and a millisecond, by made_up: (1e-3 * 1.01 + 1e-3 * 16), a quarter of it on an A100
    assert column(page, "measured") == ["17.01 ms", "4.253 ms"]
    ranked = page.locator("#ranking li").all_inner_texts()
    assert [text.split("\n")[0] for text in ranked] == ["on a100-sxm4-40gb", "on tesla-t4"]
    assert page.locator("#memory li .n").all_inner_texts() == ["56.00 MB of 15.63 GB", "56.00 MB of 42.41 GB"]
    assert "with 4 marks" in (page.locator("#roofline svg[role]").get_attribute("aria-label") or "")
    tick(page, "Source", "measured")
    assert "with 2 marks" in (page.locator("#roofline svg[role]").get_attribute("aria-label") or "")
    assert "bound" not in page.locator("#steps thead").inner_text()
    assert page.locator("#held").is_hidden()


def test_few_marks_have_names_that_cover_no_other_and_no_mark(page: Page) -> None:
    names = page.locator("#roofline text.name")
    assert names.count() == 0  # of 42 rows
    tick(page, "Batch", "16")
    tick(page, "Mode", "inference")
    texts = names.all_text_contents()
    # Four models on two devices: equal ones lie on one another.
    assert [text.partition(" on ")[2] for text in texts] == ["a100-sxm4-40gb and 3 more", "tesla-t4 and 3 more"]
    boxes = names.evaluate_all(
        "all => all.map((each) => { const b = each.getBBox(); return [b.x, b.x + b.width, b.y]; })"
    )
    spots = page.evaluate("spots.map(([x, y]) => [x, y])")
    for n, (left, right, top) in enumerate(boxes):
        assert not any(left < x < right and top + 1 < y < top + 11 for x, y in spots)
        for other_left, other_right, other_top in boxes[:n]:
            assert right <= other_left or other_right <= left or abs(top - other_top) >= 11
    tick(page, "Model", "resnet18")
    assert sorted(names.all_text_contents()) == ["on a100-sxm4-40gb", "on tesla-t4"]


def test_the_address_holds_a_view(browser: Browser, path: Path, page: Page) -> None:
    tick(page, "Mode", "train")
    page.get_by_label("Rank by").select_option("throughput")
    page.get_by_label("Colour").select_option("device")
    page.locator("#steps th", has_text="measured").get_by_role("button").click()
    page.locator("#steps tbody button").first.click()
    assert page.locator("#picked").is_visible()
    fragment = page.evaluate("location.hash").removeprefix("#")
    other = opened(browser, path, fragment=fragment).page
    for read in (
        shown,
        lambda each: each.locator("#picked").inner_text(),
        lambda each: each.locator("#steps").inner_text(),
        lambda each: each.locator("#ranking").inner_text(),
        lambda each: each.evaluate("location.hash"),
        lambda each: each.get_by_label("Colour").input_value(),
    ):
        assert read(other) == read(page)
    other.close()


def test_a_notebook_shows_it_in_a_frame(browser: Browser, records: RecordSet, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<!DOCTYPE html><title>a notebook</title>{rl.explore(records)._repr_html_()}", encoding="utf-8")
    found = opened(browser, path)
    frame = found.page.frame_locator("iframe")
    frame.get_by_role("checkbox", name="alexnet").check()
    assert frame.locator("#shown").inner_text() == "2 rows of 50"  # of the batch that the page begins with
    assert found.page.url == path.as_uri()
    assert found.said == []
    found.page.close()


def test_an_address_of_other_files_says_what_is_not_here(browser: Browser, path: Path) -> None:
    found = opened(browser, path, fragment=f"{EVERY}&model=alexnet,nobody&level=l9&part=%&pick=999")
    assert shown(found.page) == "6 rows of 50. Not in these files: nobody, level=l9, %, pick=999"
    found.page.evaluate("location.hash = 'batch=*&mode=train'")
    found.page.wait_for_function("document.getElementById('shown').textContent === '4 rows of 50'")
    assert found.said == []
    found.page.close()


def test_nothing_says_so_and_how_to_go_on(page: Page) -> None:
    tick(page, "Model", "vgg11")
    tick(page, "Mode", "train")
    assert shown(page) == "0 rows of 50"
    assert page.locator("#views").is_hidden()
    accessible(page)
    page.get_by_role("button", name="Give up mode: train").click()
    assert shown(page) == "8 rows of 50"
    page.get_by_role("button", name="Show everything").click()
    assert shown(page) == "50 rows of 50"


def test_a_header_sorts_by_value_and_keeps_the_focus(page: Page) -> None:
    page.locator("#steps .more").click()
    head = page.locator("#steps th", has_text="measured")
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert head.get_by_role("button").evaluate("each => each === document.activeElement")
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    page.locator("#steps .more").click()
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
    texts = column(page, "measured")
    known = [float(number) * units[unit] for number, unit in (text.split() for text in texts if text != "-")]
    assert known == sorted(known, reverse=True)
    assert texts[-2:] == ["-", "-"]  # two failed


def test_the_file_that_it_saves_is_that_of_read(page: Page, records: RecordSet, tmp_path: Path) -> None:
    page.get_by_role("button", name="Show everything").click()
    with page.expect_download() as waiting:
        page.locator("#steps").get_by_role("button", name="Save as CSV").click()
    waiting.value.save_as(tmp_path / "saved.csv")
    saved = list(csv.reader(StringIO((tmp_path / "saved.csv").read_text(encoding="utf-8"))))
    ours = list(csv.reader(StringIO(rl.table(records, format="csv"))))
    assert saved[0] == ours[0]
    assert [[number(text) for text in row] for row in saved] == [[number(text) for text in row] for row in ours]


def number(text: str) -> Any:
    """A number whatever its spelling: JavaScript writes 1e-7, Python 1e-07."""
    try:
        return float(text)
    except ValueError:
        return text


def test_marks_are_reached_and_read_by_keyboard(page: Page) -> None:
    figure = page.locator("#roofline svg[role]")
    figure.focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#tip").inner_text()
    assert "FLOP/B" in first
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").inner_text() != first
    page.keyboard.press("Enter")
    panel = page.locator("#picked")
    assert panel.get_by_role("heading").evaluate("each => each === document.activeElement")
    assert "resnet18" in panel.inner_text() or "alexnet" in panel.inner_text()
    page.keyboard.press("Escape")
    assert panel.is_hidden()
    assert figure.evaluate("each => each === document.activeElement")
    page.keyboard.press("Tab")  # and on: nothing keeps the focus
    assert not figure.evaluate("each => each === document.activeElement")


def test_the_pointer_finds_a_mark(page: Page) -> None:
    tick(page, "Model", "resnet18")
    tick(page, "Batch", "16")
    x, y = page.evaluate("spots[0]")[:2]
    box = page.locator("#roofline svg[role]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + x, box["y"] + y)
    assert "batch 16" in page.locator("#tip").inner_text()
    page.mouse.click(box["x"] + x, box["y"] + y)
    assert "resnet18 batch 16" in page.locator("#picked-title").inner_text()
    page.get_by_role("button", name="Close").click()
    assert page.locator("#picked").is_hidden()


def test_a_search_leaves_what_has_its_words(browser: Browser, tmp_path: Path) -> None:
    models = ", ".join(f'"net_{n}"' for n in range(14))
    text = f'title = "Many"\ndevices = ["t4"]\nmodels = [{models}]\nbatches = [1]\nsources = ["estimate"]\n'
    page = opened(browser, rl.explore(studied(tmp_path, text).records()).save(tmp_path / "page.html")).page
    page.get_by_label("Search model").fill("13")
    assert page.locator("#facets label:visible .value").all_inner_texts() == ["net_13"]
    page.close()


def test_one_row_has_nothing_to_choose_but_its_level(browser: Browser, tmp_path: Path) -> None:
    """1 GFLOP in 1 ms over 400, 100 and 10 MB: 2.5, 10 and 100 FLOP per byte."""
    page = opened(
        browser, rl.explore(RecordSet([kernel()], devices={"toy-100": cached()})).save(tmp_path / "p.html")
    ).page
    assert page.locator("aside").is_hidden()
    assert page.locator("main").evaluate("each => each.clientWidth") > DESK - 100
    for level, intensity in (("dram", "100.0"), ("l2", "10.00"), ("l1", "2.500")):
        page.get_by_label("Memory level").select_option(level)
        page.locator("#roofline svg[role]").focus()
        page.keyboard.press("ArrowRight")
        assert f"1.000 ms, {intensity} FLOP/B, 1.000 TFLOP/s" in page.locator("#tip").inner_text()
        assert f"FLOP per {level.replace('dram', 'DRAM')} byte" in page.locator("#roofline").inner_text()
        assert page.evaluate("location.hash") == ("" if level == "dram" else f"#level={level}")
    page.close()


def test_paper_has_no_controls_and_all_parts(page: Page) -> None:
    page.emulate_media(media="print")
    assert page.locator("aside").is_hidden()
    assert page.locator("#steps .tools").is_hidden()
    for part in ("#roofline svg[role]", "#ranking li", "#memory li", "#steps tbody tr", "#told"):
        assert page.locator(part).first.is_visible()


@pytest.mark.parametrize(("width", "scheme"), [(DESK, "dark"), (PHONE, "light")])
def test_it_is_accessible(browser: Browser, path: Path, width: int, scheme: Any) -> None:
    page = opened(browser, path, width, fragment="model=alexnet&pick=3", color_scheme=scheme).page
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    accessible(page)
    page.close()
