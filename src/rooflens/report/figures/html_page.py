"""The page around an interactive figure: one HTML file that asks nothing of any host."""

from __future__ import annotations

from jinja2 import Environment

from rooflens.report.escape import printable
from rooflens.report.figures.labels import footnotes
from rooflens.report.figures.page_layout import EDGE, PLANE_WIDTH, SCREEN, Page
from rooflens.report.figures.palette import GREY, INK
from rooflens.report.figures.plotly_labels import PX
from rooflens.report.figures.with_plotly import FONTS, draw, height

# Named one by one: some of plotly's other buttons send the data away.
_BUTTONS = [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]]

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline';
 style-src 'unsafe-inline'; img-src data: blob:">
<title>{{ title }}</title>
<style>
body { margin: 0; background: white; color: {{ ink }}; font: 13px/1.45 {{ fonts | safe }}; }
main { min-width: {{ narrow }}px; max-width: {{ wide }}px; margin: 0 auto; }
header, footer { padding: 0 {{ edge }}px; }
h1 { font-size: 18px; margin: 18px 0 2px; }
header p { margin: 0 0 4px; color: {{ grey }}; }
footer ul { margin: 4px 0 18px; padding: 0; list-style: none; color: {{ grey }}; font-size: 12px; }
</style>
</head>
<body>
<main>
<header><h1>{{ title }}</h1><p>{{ subtitle }}</p></header>
{{ plot | safe }}
<noscript><p>JavaScript that is part of this file draws the figure; nothing is loaded from elsewhere.</p></noscript>
<footer><ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul></footer>
</main>
</body>
</html>
"""


def render_html(page: Page) -> str:
    """Return a whole page; equal figures give equal pages."""
    figure = page.figure
    plot = draw(page).to_html(
        full_html=False,
        include_plotlyjs=True,
        include_mathjax=False,
        div_id="roofline",
        default_height=f"{height(page):.0f}px",
        config={"displaylogo": False, "responsive": True, "modeBarButtons": _BUTTONS},
    )
    outside = page.width - PLANE_WIDTH
    template = Environment(autoescape=True).from_string(_PAGE)
    return template.render(
        title=printable(figure.title),
        subtitle=printable(figure.subtitle),
        notes=[printable(note) for note in footnotes(figure, len(figure.unplaced))],
        plot=plot,
        fonts=FONTS,
        ink=INK,
        grey=GREY,
        edge=round(EDGE * PX),
        narrow=round((outside + SCREEN[0] * PLANE_WIDTH) * PX),
        wide=round((outside + SCREEN[1] * PLANE_WIDTH) * PX),
    )
