"""Run the cells of docs/notebook.ipynb and keep what they show: `.venv/bin/python scripts/notebook_docs.py`.

Cells run here and not in Jupyter: as there, the last expression of a cell is shown by its ``_repr_html_`` or
``_repr_png_``, else as text. A test runs the cells too, and fails if what they show is stale.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"
_SHOWN = (("text/html", "_repr_html_"), ("image/png", "_repr_png_"))


def shown_by(code: str, names: dict[str, Any]) -> dict[str, str]:
    """Run a cell, and return what its last expression shows by media type; nothing where it ends with a statement."""
    *before, last = ast.parse(code).body
    alone = isinstance(last, ast.Expr)
    exec(compile(ast.Module(before if alone else [*before, last], []), "cell", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None
    if value is None:
        return {}
    made = {media: maker() for media, name in _SHOWN if (maker := getattr(value, name, None)) is not None}
    texts = {
        media: base64.b64encode(what).decode() if isinstance(what, bytes) else what
        for media, what in made.items()
        if what is not None
    }
    return texts or {"text/plain": repr(value)}


def shown_by_cells(notebook: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Run the cells one after the other, in an empty folder, and yield each with what it shows."""
    names: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                yield cell, shown_by("".join(cell["source"]), names)


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    for number, (cell, shown) in enumerate(shown_by_cells(notebook), 1):
        data = {media: text.splitlines(keepends=True) for media, text in shown.items()}
        about = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        cell.update(execution_count=number, outputs=[{**about, "data": data}] if data else [])
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(os.path.relpath(NOTEBOOK))


if __name__ == "__main__":
    main()
