"""Build the site of the pages: `.venv/bin/python scripts/build_site.py [FOLDER]`, or `make docs`. Needs no network.

The pages of docs/ and three files of the root are laid out in a folder of their own, the reference of Python is written
from the docstrings, Sphinx makes HTML of all, and each link and each address of the result is looked at.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import rooflens

ROOT = Path(__file__).parents[1]
OUT = ROOT / "out" / "site"
ALSO = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the root that are pages of the site, by their names there."""
REFERENCE = "python-reference.md"
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_ADDRESS = re.compile(r"""(?:url\(|@import)\s*["']?(?P<address>[^"')\s;]+)""")
_OF_DOCUTILS = re.compile(r"id\d+")
"""What it names places in docstrings that are no reStructuredText, whether it shows them or not."""
_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""By element: the attribute whose address a browser loads without being asked."""


def main(out: Path = OUT) -> None:
    """Lay the pages out, build them, and look at what was built."""
    source = out.with_name(f"{out.name}-source")
    for folder in (source, out):
        shutil.rmtree(folder, ignore_errors=True)
    lay_out(source)
    sphinx = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-b", "html"]
    subprocess.run([*sphinx, "-c", ROOT / "docs", source, out], check=True)
    if faults := [*broken_links(out), *requests(out)]:
        sys.exit("\n".join(faults))
    print(f"{out / 'index.html'}: {len(list(out.glob('*.html')))} pages")


def lay_out(source: Path) -> None:
    """Copy the pages, with links as they are in the site and the contents of the index as its menu."""
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for name, there in ALSO.items():
        text = _LINK.sub(_seen_from_docs, (ROOT / name).read_text())
        (source / there).write_text(text)
    (source / REFERENCE).write_text(reference())
    notebook(source / "notebook.ipynb")
    for page in source.glob("*.md"):
        page.write_text(_LINK.sub(_link, page.read_text()))
    types = source / "model-types.md"
    types.write_text(f"{types.read_text()}\n```{{csv-table}}\n:file: model-types.csv\n:header-rows: 1\n```\n")
    index = source / "index.md"
    index.write_text(with_menu(index.read_text()))


def _seen_from_docs(match: re.Match[str]) -> str:
    """A link of a file of the root as a page of docs/ would have it."""
    target = match["target"]
    if target.startswith(("https://", "#")):
        return match[0]
    seen = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
    return f"{match['picture']}[{match['text']}]({seen})"


def _link(match: re.Match[str]) -> str:
    """A link of a page as the site has it: a file of the repository that is no page is named."""
    path, mark, place = match["target"].removeprefix("../").partition("#")
    if not match["target"].startswith("../"):
        return match[0].replace(".ipynb)", ".md)")
    if path in ALSO:
        return f"[{match['text']}]({ALSO[path]}{mark}{place})"
    name = match["text"].strip("`")
    return f"`{path}`" if name in path else f"{match['text']} (`{path}`)"


def notebook(path: Path) -> None:
    """Write a notebook as a page beside it: its texts, its cells, and what they showed."""
    parts = []
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for data in (output["data"] for output in cell.get("outputs", ())):
            if "image/png" in data:
                picture = path.with_name(f"notebook-{number}.png")
                picture.write_bytes(base64.b64decode("".join(data["image/png"])))
                parts.append(f"![What the cell shows]({picture.name})")
            elif "text/html" in data:
                parts.append("````{raw} html\n" + "".join(data["text/html"]) + "\n````")
            else:
                parts.append("```text\n" + "".join(data["text/plain"]) + "\n```")
    path.with_suffix(".md").write_text("\n\n".join(parts) + "\n")


def with_menu(index: str) -> str:
    """The index with a hidden table of contents below each heading: its links, in their order."""
    parts = re.split(r"^(## .+\n)", index, flags=re.MULTILINE)
    menu = [parts[0]]
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        pages = [match["target"] for match in _LINK.finditer(text) if match["target"].endswith(".md")]
        pages += [REFERENCE] if "python.md" in pages else []
        entries = "".join(f"{page.removesuffix('.md')}\n" for page in dict.fromkeys(pages))
        caption = heading.removeprefix("## ").strip()
        menu += [heading, text, f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}```\n\n"]
    return "".join(menu)


def reference() -> str:
    """The page of every public name, from its docstring."""
    lines = ["# Every public name", "", "Made from the docstrings. [Python](python.md) shows them at work.", ""]
    names = sorted((name for name in rooflens.__all__ if name != "__version__"), key=lambda name: name.lower())
    for name in names:
        kind = "class" if isinstance(getattr(rooflens, name), type) else "function"
        members = "\n   :members:" if kind == "class" else ""
        lines += [f"## {name}", "", "```{eval-rst}", f".. auto{kind}:: rooflens.{name}{members}", "```", ""]
    return "\n".join(lines)


class _Page(HTMLParser):
    """The names, links and loaded addresses of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element names, leads to and loads."""
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[key] for key in ("id", "name") if key in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in _LOADED and _LOADED[tag] in given:
            self.loaded.append(given[_LOADED[tag]])
        self.loaded += [match["address"] for match in _ADDRESS.finditer(given.get("style", ""))]


def broken_links(site: Path) -> Iterator[str]:
    """Say of each link of the site that leads to no page, or to no place of a page."""
    pages = {path.resolve(): _Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or _OF_DOCUTILS.fullmatch(parts.fragment):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{path.name}: {link} leads nowhere"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].names:
                yield f"{path.name}: {link} names no place of {target.name}"


def requests(site: Path) -> Iterator[str]:
    """Say of each address that a page or a style sheet loads from another host."""
    for path in site.rglob("*"):
        if path.suffix == ".html":
            loaded = _Page(path).loaded
        elif path.suffix == ".css":
            loaded = [match["address"] for match in _ADDRESS.finditer(path.read_text())]
        else:
            continue
        yield from (f"{path.name} loads {address}" for address in loaded if urlsplit(address).netloc)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
