"""Rebuild the studies under studies/ from estimates and recorded files, and the tables in their pages.

    python scripts/studies.py [--check] [NAME ...]

Nothing is measured and every estimate is made anew: records go to out/studies/NAME, the report to
out/studies/NAME.html, and verdicts and figures into studies/NAME/README.md, between the comments that mark their place.
With --check no page is written, and a stale page is an error.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import rooflens as rl
from rooflens.api.studies import figures_of, study_view
from rooflens.report.render import render
from rooflens.report.reported_figures import figures_tables
from rooflens.report.study import compose
from rooflens.report.study.outputs import write as write_report
from rooflens.study import StudyFolder

ROOT = Path(__file__).parents[1]
STUDIES = ROOT / "studies"
_MARKED = "<!-- {0} -->\n.*?<!-- end of {0} -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help="folders under studies/ [default: all]")
    parser.add_argument("--check", action="store_true", help="leave the pages alone; fail if one is stale")
    options = parser.parse_args()
    wanted = options.names or names()
    # Side by side, since only estimates use all cores; spawned, since forks and torch's threads do not go together.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        fresh = list(pool.map(partial(rebuilt, write=not options.check), wanted))
    stale = [name for name, is_fresh in zip(wanted, fresh, strict=True) if not is_fresh]
    if stale:
        sys.exit(f"stale: {', '.join(f'studies/{name}/README.md' for name in stale)}; run make studies")


def names() -> tuple[str, ...]:
    """The studies, in the order of their names."""
    return tuple(sorted(path.parent.name for path in STUDIES.glob("*/study.toml")))


def rebuilt(name: str, *, write: bool) -> bool:
    """Run a study without measuring, and whether its page says what came of it."""
    begun = time.monotonic()
    folder, page = ROOT / "out" / "studies" / name, STUDIES / name / "README.md"
    shutil.rmtree(folder, ignore_errors=True)  # what an older version left there would stand
    status = rl.run_study(STUDIES / name / "study.toml", folder, jobs=2, sources=["estimate"])
    if status.failures or any(cell.source == "estimate" for cell in status.cells("left")):
        why = [failure.message for failure in status.failures.values()] or "estimates are left"
        raise RuntimeError(f"{name}: {why}")
    opened = StudyFolder.open(folder)
    write_report(compose(study_view(opened)), folder.with_suffix(".html"))
    before = page.read_text()
    now = filled(before, dict(sections(opened)))
    if write:
        page.write_text(now)
    print(f"{name}: {status.count('done')} cells, {time.monotonic() - begun:.0f} s", flush=True)
    return write or now == before


def sections(folder: StudyFolder) -> Iterator[tuple[str, str]]:
    """What a page tells of the records, by the name of the place."""
    contents = folder.contents()
    verdicts = folder.verdicts(contents)
    yield "verdicts", "".join(f"- **{verdict.hypothesis.text}**: {verdict.sentence}\n" for verdict in verdicts)
    compared, rest = figures_tables(figures_of(folder, contents))
    yield "figures", render(compared, "md")
    yield "not computed", render(rest, "md") if rest.rows else "Every reported figure has a number of ours.\n"


def filled(page: str, sections: dict[str, str]) -> str:
    """The page with its marked places filled."""
    for name, text in sections.items():
        place = re.compile(_MARKED.format(name), re.DOTALL)
        if not place.search(page):
            raise ValueError(f"the page has no place for {name}: <!-- {name} --> and <!-- end of {name} -->")
        page = place.sub(lambda _, n=name, t=text: f"<!-- {n} -->\n\n{t.strip()}\n\n<!-- end of {n} -->", page)  # type: ignore[misc]
    return page


if __name__ == "__main__":
    main()
