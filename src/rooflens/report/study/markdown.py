"""A report as Markdown, with its figures as images beside it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from rooflens.report.escape import markdown, markdown_block
from rooflens.report.study.content import Block, Code, Facts, FigureBlock, Report, Sentences, TableBlock
from rooflens.report.text_formats import as_markdown as tables_as_markdown


def as_markdown(report: Report, images: str) -> str:
    """GitHub's Markdown.

    Args:
        images: the folder of the figures, relative to the file.
    """
    lines = [f"# {markdown(report.title)}", "", markdown(report.subtitle), ""]
    for section in report.sections:
        lines += [f"## {markdown(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block, images), ""]
    return "\n".join(lines)


def _block(block: Block, images: str) -> Iterator[str]:
    if isinstance(block, str):
        yield "\n".join(markdown_block(line) for line in block.splitlines())
    elif isinstance(block, Facts):
        yield from (f"- **{markdown(name)}**: {markdown(value)}" for name, value in block.items)
    elif isinstance(block, Sentences):
        yield from (f"- {markdown_block(sentence)}" for sentence in block.items)
    elif isinstance(block, Code):
        yield from (f"### {markdown(block.title)}", "", *(f"    {line}" for line in block.text.splitlines()))
    elif isinstance(block, TableBlock):
        yield tables_as_markdown([block.table])
    else:
        yield from _figure(block, images)


def _figure(drawn: FigureBlock, images: str) -> Iterator[str]:
    title = markdown(drawn.chart.title)
    yield from (f"### {title}", "", f"![{title}]({quote(images)}/{drawn.chart.key}.svg)", "")
    yield from (f"- {markdown_block(note)}" for note in drawn.chart.notes)
