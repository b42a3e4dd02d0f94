"""List the licences of all that rooflens installs: `.venv/bin/python scripts/licences.py` writes LICENCES.md.

With `--check` nothing is written, and the exit code is 1 if the page is stale. Names and licences come from what the
installed packages say of themselves; a package that is not installed keeps its line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageMetadata, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "LICENCES.md"
EXTRAS = ("", "torch", "vision", "llm", "pandas", "gpu", "onnx", "ncu", "slurm")
HEAD = """\
# Licences of dependencies

`scripts/licences.py` writes this page. rooflens itself is under the [Apache License 2.0](LICENSE) and contains none of
these packages; pip installs them. Without an extra only those without a word in the last column are installed.

| package | licence, as the package says | extra |
|---|---|---|
"""
_TEXTS = {"Permission is hereby granted, free of charge": "MIT", "Redistribution and use in source and binary": "BSD"}
"""Licences by words of their text, which some packages give in place of a name."""
_CLASSIFIER = "License :: OSI Approved :: "


def needed() -> dict[str, str]:
    """Every package that is installed with rooflens, and the first extra that asks for it."""
    found: dict[str, str] = {}
    for extra in EXTRAS:
        waiting = [("rooflens", extra)]
        seen = set(waiting)
        while waiting:
            name, of = waiting.pop()
            for inner in required(name, of):
                found.setdefault(inner[0], extra)
                if inner not in seen:
                    seen.add(inner)
                    waiting.append(inner)
    found.pop("rooflens", None)
    return found


def required(name: str, extra: str) -> Iterator[tuple[str, str]]:
    """Yield the packages that one needs here for an extra, "" for itself, each with the extras that it asks for."""
    try:
        lines = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        of_extra = marker is not None and "extra" in str(marker)
        if of_extra == bool(extra) and (marker is None or marker.evaluate({"extra": extra})):
            for inner in ("", *requirement.extras):
                yield canonicalize_name(requirement.name), inner


def licence(name: str) -> str | None:
    """What a package says of its licence; None if it is not installed."""
    try:
        about = distribution(name).metadata
    except PackageNotFoundError:
        return None
    expression, said = _field(about, "License-Expression"), _field(about, "License")
    classifiers = about.get_all("Classifier") or []
    kinds = [value.removeprefix(_CLASSIFIER) for value in classifiers if value.startswith(_CLASSIFIER)]
    told = [name for words, name in _TEXTS.items() if words in " ".join(said.split())]
    line = said if said and "\n" not in said else ""
    return expression or line or ", ".join(kinds) or ", ".join(told) or "not told: see the package"


def _field(about: PackageMetadata, name: str) -> str:
    return about[name].strip() if name in about else ""


def page(before: str) -> str:
    """The page; packages that are not installed here keep the lines that it had `before`."""
    kept = {line.split(" | ")[0].strip("| "): line for line in before.splitlines() if re.match(r"\| [a-z0-9]", line)}
    kept.pop("package", None)
    for name, extra in needed().items():
        said = licence(name)
        if said is not None:
            kept[name] = f"| {name} | {said.replace('|', '/')} | {extra} |"
    return HEAD + "".join(f"{kept[name]}\n" for name in sorted(kept))


def main() -> int:
    """Write the page, or check it."""
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    now = page(before)
    if "--check" in sys.argv:
        print("LICENCES.md is as it has to be" if now == before else "LICENCES.md is stale: run scripts/licences.py")
        return int(now != before)
    PAGE.write_text(now, encoding="utf-8")
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
