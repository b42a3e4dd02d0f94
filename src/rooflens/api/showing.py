"""Records as tables of text and as figures."""

from __future__ import annotations

from collections.abc import Sequence

from rooflens.api.arguments import named_options
from rooflens.compare import Comparison
from rooflens.errors import InvalidValue
from rooflens.machine import datasheet_of, found_each, listed
from rooflens.records import Device
from rooflens.report.arranged import TableView
from rooflens.report.asked_tables import asked_tables
from rooflens.report.case_json import promised_json
from rooflens.report.comparison import comparison_tables
from rooflens.report.explorer import Explorer
from rooflens.report.figures.case_pieces import PieceKind
from rooflens.report.figures.roofline import devices_of, roofline_figure
from rooflens.report.figures.saving import Figure
from rooflens.report.largest_batches import largest_sizes
from rooflens.report.module_tables import at_depth
from rooflens.report.overview import tables_of
from rooflens.report.pictures import ChartPicture, chart_of
from rooflens.report.render import Format, render
from rooflens.report.summary import failures, summary
from rooflens.report.sweep_grids import sweep_grids
from rooflens.report.table import Table
from rooflens.report.text_formats import as_json
from rooflens.results import Fits, RecordSet


@named_options()
def table(
    *records: RecordSet | Fits | Comparison,
    format: Format = "table",
    depth: int | None = None,
    by: PieceKind | None = None,
    sort: str | None = None,
    top: int | None = None,
    columns: Sequence[str] = (),
    width: int | None = None,
    color: bool = False,
) -> str:
    """Return the tables of the command line as text: ``print(rl.table(est, time))``; twin of ``--format``.

    Several cases give a summary and their memory; a single estimated case also its operation families and its modules.
    For people, a sweep of many cases over two sizes is a small table for each number that they ask of it.

    Args:
        records: sets of any sources; the estimate and the measurement of a case share a row. Or what
            :func:`largest_batch` or :func:`compare` gave, alone.
        format: ``table`` for people, ``md`` or ``tex`` for papers, ``csv`` (the summary alone) or ``json`` (the
            promised shape, one object per case; of largest batches one object per device; of a comparison its tables,
            each with title, rows and notes) for programs.
        depth: how deep the module tree goes; default: 1, and 3 of tables by ``module``.
        by: one row per ``module`` (class, sizes, parameters, work, times), ``family``, ``module-family`` (both at
            once), ``op``, ``kernel``, ``phase`` or ``model``, instead of the overview.
        sort: the column, by key or header, whose largest values come first; ``order`` is that of the step.
        top: the first rows only: those that take most time, if they are not sorted otherwise.
        columns: these columns, by key or header, beside those that name a row. Without `by`, `sort`, `top` and
            `columns` are about the summary.
        width: columns of a ``table``; default: the terminal's own, 80 in a pipe.
        color: whether a ``table`` has terminal colours.

    Raises:
        InvalidValue: an unknown format, piece or column, nothing is known of the pieces, or there is no record and no
            failure.
    """
    if width is not None and width < 1:
        raise InvalidValue(f"width is {width}; give columns of text, at least 1")
    sets = [item for item in records if isinstance(item, RecordSet)]
    if len(sets) < len(records):
        if len(records) == 1 and not isinstance(records[0], Fits):
            shown = comparison_tables(records[0], for_files=format in ("csv", "json"))
            return render(shown, format, width=width, color=color)
        rows, held = _largest_batches(records)
        files = format in ("csv", "json")  # whose one table has every column
        return render(rows if files else [rows, held], format, width=width, color=color)
    together = RecordSet.union(sets)
    view = TableView(by=by, depth=depth, sort=sort, top=top, columns=tuple(columns))
    if not view.is_overview and together.records:
        asked = asked_tables(together, view, together=format in ("csv", "json"))
        return render(asked[0] if format == "json" else asked, format, width=width, color=color)
    if format == "json":
        return as_json(promised_json(together))
    if format == "csv" and together.records:  # one table, which has every column
        return render(summary(together), format)
    grids = sweep_grids(together) if format == "table" else []  # a row for each case would be pages
    failed = [failures(together)] if grids and together.failures else []
    overview = [*grids, *failed] or tables_of(together, 1 if depth is None else depth)
    return render(overview, format, width=width, color=color)


def _largest_batches(items: Sequence[object]) -> tuple[Table, Table]:
    if len(items) == 1 and isinstance(items[0], Fits):
        return largest_sizes(items[0])
    raise InvalidValue("largest batches have a table of their own, and so has a comparison; show each apart")


@named_options()
def roofline(
    *records: RecordSet,
    by: PieceKind | None = None,
    device: str | Device | Sequence[str | Device] | None = None,
    level: str | Sequence[str] | None = None,
    title: str | None = None,
    top: int | None = None,
    depth: int | None = None,
) -> Figure:
    """Return the roofline of estimates and measurements: ``rl.roofline(est, time).save("resnet18.html")``.

    Args:
        records: sets of any sources; the estimated and the measured point of the same thing are joined by a line.
        by: one mark per ``model``, ``phase``, ``module``, ``family``, ``module-family``, ``op`` or ``kernel``; default:
            what the records allow.
        device: draw these devices' ceilings too, or instead of none; a name in the records or the catalogue. Beside
            measured ceilings, those of the catalogue's entry for the same machine are drawn in any case.
        level: memory levels of the intensities: ``dram``, ``l2``, ``l1`` or several. Default: all whose bytes are
            known, so that counters give the hierarchical roofline.
        title: default: what the records have in common.
        top: how many kernels, modules ... of a case to draw, those that take most time. Default: 12 of kernels, and of
            anything on several levels; else all.
        depth: levels of modules, where marks are of modules: a mark holds what lies deeper. Default: 3.

    Raises:
        InvalidValue: an unknown `by` or `level`, or a `top` below 1.
        UnknownDevice: nobody knows a device of this name.
    """
    together = RecordSet.union(records)
    if by in ("module", "module-family"):
        together = at_depth(together, depth)
    shown = list(devices_of(together))
    if device is not None:
        shown += found_each([together.devices.get(d, d) if isinstance(d, str) else d for d in listed(device)])
    datasheets = [sheet for sheet in map(datasheet_of, shown) if sheet is not None]
    return roofline_figure(together, by=by, devices=[*shown, *datasheets], level=level, title=title, top=top)


def chart(name: str, *records: RecordSet) -> ChartPicture:
    """Return a chart of estimates and measurements: ``rl.chart("throughput", est, time).save("resnet18.svg")``.

    Args:
        name: ``agreement`` (bound against measured time), ``latency`` (time against FLOP), ``throughput`` (samples
            per second against the batch) ...: [all of them](figures.md#other-charts); an unknown name lists them.
        records: sets of any sources.

    Raises:
        InvalidValue: an unknown `name`, or the records hold nothing for this chart.
        Incomparable: no record of a whole step has a time.
    """
    return chart_of(name, RecordSet.union(records))


@named_options()
def explore(*records: RecordSet, title: str | None = None) -> Explorer:
    """Return a page to explore records on: ``rl.explore(est, time).save("page.html")``.

    A person chooses models, batches, dtypes, modes, options, devices, sources and the memory level among the records,
    and sees roofline, ranking, memory and tables of what was chosen. The page is one file that loads nothing.

    Args:
        records: sets of any sources, as in :func:`table`, whose numbers the page shows.
        title: default: how many models and devices there are.
    """
    return Explorer(RecordSet.union(records), title)
