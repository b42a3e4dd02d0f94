"""Measure how long a page of `explore` takes to make and to open.

    .venv/bin/python benchmarks/explored_page.py [CASES] [--runs N]

Makes up estimates and measurements of CASES cases (default: 5,000) on five devices, and opens the page in a headless
Chromium: from the request until the script has drawn everything and the browser has painted it, and the time of one
choice. Prints medians. Exit code 1 if opening takes more than two seconds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from itertools import islice, product
from pathlib import Path

from tests.chromium import running
from tests.report_samples import made_up

import rooflens as rl
from rooflens.records import Case
from rooflens.results import RecordSet
from rooflens.study import Cell

DEVICES = ("tesla-t4", "a100-sxm4-40gb", "h100-sxm5-80gb", "l4", "v100-sxm2-16gb")
MOST = 2.0
PAINTED = "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"
CHOICE = f"async () => {{ const start = performance.now(); facet.click(); return (await {PAINTED}) - start }}"


def records(cases: int) -> RecordSet:
    """Made-up records: models of 40 sizes at four batches on five devices, estimated and measured."""
    cells = islice(product(range(cases), (1, 8, 32, 128), DEVICES), cases)
    files = [
        made_up(Cell(case=Case(model=f"made_up_{model}", device=device, batch=batch), source=source), 1 + model % 40)
        for model, batch, device in cells
        for source in ("estimate", "measure")
    ]
    devices = {name: device for file in files for name, device in file.devices.items()}
    return RecordSet((record for file in files for record in file.records), devices=devices)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=int, nargs="?", default=5_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    made = records(options.cases)
    with tempfile.TemporaryDirectory() as folder, running() as browser:
        path = Path(folder) / "page.html"
        start = time.perf_counter()
        rl.explore(made).save(path)
        print(f"made in {time.perf_counter() - start:.1f} s, {path.stat().st_size / 1e6:.2f} MB")
        opening, choosing = [], []
        for _ in range(options.runs):
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(path.as_uri())
            opening.append(page.evaluate(PAINTED) / 1e3)
            page.evaluate("globalThis.facet = document.querySelector('#facets input[type=checkbox]')")
            choosing.append(page.evaluate(CHOICE) / 1e3)
            page.close()
    print(f"opens in {statistics.median(opening):.2f} s ({min(opening):.2f} to {max(opening):.2f})")
    print(f"a choice takes {statistics.median(choosing):.2f} s ({min(choosing):.2f} to {max(choosing):.2f})")
    sys.exit(statistics.median(opening) > MOST)


if __name__ == "__main__":
    main()
