"""The site: links of pages become links of the site, and what leads nowhere or asks another host is told."""

from __future__ import annotations

from pathlib import Path

from scripts import build_site
from scripts.build_site import broken_links, lay_out, requests, with_menu


def test_pages_are_laid_out_with_links_of_the_site(tmp_path: Path) -> None:
    lay_out(tmp_path / "pages")
    index = (tmp_path / "pages" / "index.md").read_text()
    assert "](contributing.md)" in index
    assert "](cli.md)" in (tmp_path / "pages" / "contributing.md").read_text() + index
    for page in (tmp_path / "pages").glob("*.md"):
        assert "](../" not in page.read_text(), page.name
        assert "](notebook.ipynb)" not in page.read_text(), page.name
    notebook = (tmp_path / "pages" / "notebook.md").read_text()
    assert notebook.startswith("# rooflens in a notebook\n")
    assert "```python\nimport rooflens as rl\n" in notebook
    (picture,) = (tmp_path / "pages").glob("notebook-*.png")
    assert f"]({picture.name})" in notebook
    reference = (tmp_path / "pages" / build_site.REFERENCE).read_text()
    assert ".. autofunction:: rooflens.estimate\n" in reference
    assert ".. autoclass:: rooflens.RecordSet\n   :members:\n" in reference


def test_a_file_that_is_no_page_is_named(tmp_path: Path) -> None:
    lines = [
        ("[`errors.py`](../src/rooflens/errors.py)", "`src/rooflens/errors.py`"),
        ("[the tree](../src/rooflens/errors.py)", "the tree (`src/rooflens/errors.py`)"),
        ("[start](../README.md#install)", "[start](readme.md#install)"),
        ("[below](#here)", "[below](#here)"),
        ("![a picture](images/roofline.png)", "![a picture](images/roofline.png)"),
    ]
    for shown, expected in lines:
        assert build_site._LINK.sub(build_site._link, shown) == expected


def test_the_menu_has_the_links_of_each_heading_in_their_order() -> None:
    menu = with_menu("# top\n[no](x.md)\n## Learn\n[b](b.md) [a](a.md) [b](b.md)\n## Look up\n[p](python.md)\n")
    assert "```{toctree}\n:hidden:\n:caption: Learn\n\nb\na\n```" in menu
    assert ":caption: Look up\n\npython\npython-reference\n```" in menu
    assert menu.count("toctree") == 2


def test_links_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="#top">1</a><a href="b.html#low">2</a><a href="b.html#no">3</a>'
        '<a href="c.html">4</a><a href="https://example.org/x">5</a><a href="#gone">6</a>'
    )
    (tmp_path / "b.html").write_text('<a name="low"></a>')
    assert sorted(broken_links(tmp_path)) == [
        "a.html: #gone names no place of a.html",
        "a.html: b.html#no names no place of b.html",
        "a.html: c.html leads nowhere",
    ]


def test_requests_to_other_hosts_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<script src="//cdn.example/x.js"></script><script src="own.js"></script><a href="https://example.org">no</a>'
        '<img src="https://pics.example/p.png"><p style="background:url(https://pics.example/q.png)">'
    )
    (tmp_path / "b.css").write_text('@import "https://fonts.example/f.css"; a { background: url("own.png") }')
    assert sorted(requests(tmp_path)) == [
        "a.html loads //cdn.example/x.js",
        "a.html loads https://pics.example/p.png",
        "a.html loads https://pics.example/q.png",
        "b.css loads https://fonts.example/f.css",
    ]
