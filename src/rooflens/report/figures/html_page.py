"""The page around an interactive figure: one HTML file that asks nothing of any host."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment
from plotly.io.json import to_json_plotly
from plotly.offline import get_plotlyjs

from rooflens.report.escape import printable
from rooflens.report.figures.html_keys import keys
from rooflens.report.figures.labels import footnotes
from rooflens.report.figures.page_layout import (
    EDGE,
    PHONE,
    PHONE_MOST,
    PHONE_WIDTH,
    PLANE_WIDTH,
    SCREEN,
    Page,
    arrange,
)
from rooflens.report.figures.palette import GREY, INK
from rooflens.report.figures.plotly_labels import PX
from rooflens.report.figures.roofline_data import RooflineData
from rooflens.report.figures.with_plotly import FONTS, draw, zoomed_ticks

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
main { max-width: {{ wide }}px; margin: 0 auto; }
header, footer { padding: 0 {{ edge }}px; }
h1 { font-size: 18px; margin: 18px 0 2px; }
h1, header p, .keys li { overflow-wrap: anywhere; }
header p { margin: 0 0 4px; color: {{ grey }}; }
footer ul { margin: 4px 0 18px; padding: 0; list-style: none; color: {{ grey }}; font-size: 12px; }
footer li { overflow-wrap: anywhere; }
.keys { display: none; margin: 0; padding: 0 {{ edge }}px 8px; list-style: none; gap: 2px 14px;
  grid-template-columns: repeat(auto-fill, minmax(140px, 1fr)); }
.keys li { display: flex; }
.keys .wide { grid-column: 1 / -1; }
.keys .heading { color: {{ grey }}; font-weight: 600; font-size: 12px; margin-top: 8px; }
.keys svg { flex: none; margin: 3px 7px 0 0; }
.keys button { all: unset; display: flex; cursor: pointer; padding: 3px 0; }
.keys button:focus-visible { outline: 2px solid {{ ink }}; }
.keys button[aria-pressed=false] { opacity: .4; }
@media (max-width: {{ narrow }}px) { main { max-width: {{ phone }}px } .keys { display: grid } }
</style>
</head>
<body>
<main>
<header><h1>{{ title }}</h1><p>{{ subtitle }}</p></header>
<div id="roofline"></div>
{{ keys | safe }}
<noscript><p>JavaScript that is part of this file draws the figure; nothing is loaded from elsewhere.</p></noscript>
<footer><ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul></footer>
</main>
<script>{{ library | safe }}</script>
<script>
"use strict";
const pages = {{ pages | safe }}, config = {{ config | safe }}, groups = {{ groups | safe }};
const plot = document.getElementById("roofline"), phone = matchMedia("(max-width: {{ narrow }}px)");
function show() {
  const page = phone.matches ? pages.phone : pages.wide;
  plot.style.height = `${page.layout.height}px`;
  Plotly.react(plot, page.data, page.layout, config);
}
// Of each axis the finest ticks that have room in what is shown.
function ticks() {
  const found = {};
  for (const [name, axis] of Object.entries((phone.matches ? pages.phone : pages.wide).ticks)) {
    const [low, high] = plot.layout[name].range.map((power) => 10 ** power);
    const rows = axis.choices.map((row) => row.filter(([tick]) => low <= tick && tick <= high));
    const row = rows.find((row) => row.length <= axis.most) || [];
    if (String(row.map(([tick]) => tick)) === String(plot.layout[name].tickvals)) continue;
    found[`${name}.tickvals`] = row.map(([tick]) => tick);
    found[`${name}.ticktext`] = row.map(([, text]) => text);
  }
  if (Object.keys(found).length) Plotly.relayout(plot, found);
}
document.querySelectorAll("[data-group]").forEach((button) => button.addEventListener("click", () => {
  const shown = button.getAttribute("aria-pressed") !== "true";
  button.setAttribute("aria-pressed", shown);
  const group = groups[button.dataset.group];
  const own = plot.data.map((trace, number) => number).filter((number) => plot.data[number].legendgroup === group);
  Plotly.restyle(plot, { visible: shown }, own);
}));
show();
plot.on("plotly_relayout", ticks);
phone.addEventListener("change", show);
</script>
</body>
</html>
"""


def render_html(figure: RooflineData) -> str:
    """Return a whole page, set for wide windows and for phones; equal figures give equal pages."""
    wide, phone = arrange(figure, SCREEN), arrange(figure, PHONE, PHONE_WIDTH)
    outside = wide.width - PLANE_WIDTH
    template = Environment(autoescape=True).from_string(_PAGE)
    return template.render(
        title=printable(figure.title),
        subtitle=printable(figure.subtitle),
        notes=[printable(note) for note in footnotes(figure, len(figure.unplaced))],
        library=get_plotlyjs(),
        keys=keys(phone),
        pages=_in_script({"wide": _plot(wide), "phone": _plot(phone)}),
        groups=_in_script(figure.groups),
        config=_in_script({"displaylogo": False, "responsive": True, "modeBarButtons": _BUTTONS}),
        fonts=FONTS,
        ink=INK,
        grey=GREY,
        edge=round(EDGE * PX),
        narrow=round((outside + SCREEN[0] * PLANE_WIDTH) * PX),
        wide=round((outside + SCREEN[1] * PLANE_WIDTH) * PX),
        phone=round(PHONE_MOST * PX),
    )


def _plot(page: Page) -> dict[str, Any]:
    return {**draw(page).to_plotly_json(), "ticks": zoomed_ticks(page)}


def _in_script(data: Any) -> str:
    """Return JSON that cannot end the script in which it stands."""
    return str(to_json_plotly(data)).replace("<", "\\u003c").replace(">", "\\u003e")
