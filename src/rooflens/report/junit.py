"""A gate's verdicts as JUnit XML, which every CI server shows."""

from __future__ import annotations

from rooflens import units
from rooflens.compare import RunChange, RunComparison
from rooflens.report.escape import printable


def gate_xml(compared: RunComparison, threshold: float, *, doubtful: bool = False) -> bytes:
    """One test case per step: failed where it is slower beyond the threshold, or where nothing can be said.

    A step that failed on the second side is an error.

    Args:
        threshold: 0.05 is 5 %.
        doubtful: doubtful steps fail too.
    """
    from io import BytesIO

    from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

    suite = TestSuite("rooflens compare")
    for row in compared.steps:
        case = TestCase(printable(row.after.label()), classname=printable(row.after.model), time=row.after_seconds)
        case.system_out = sentence(row)
        if row.slower_than(threshold):
            case.result = [Failure(f"slower by more than {100 * threshold:g} %: {sentence(row)}", "slower")]
        elif row.significant is None:
            case.result = [Failure(f"nothing can be said, {row.change.undecided}: {sentence(row)}", "undecided")]
        elif doubtful and row.doubts:
            case.result = [Failure(printable(f"{'; '.join(row.doubts)}: {sentence(row)}"), "doubtful")]
        suite.add_testcase(case)
    for alone in compared.only_before:
        failed = next((failure for failure in compared.failed if failure.case == alone), None)
        case = TestCase(printable(alone.label()), classname=printable(alone.model))
        if failed is None:
            case.result = [Skipped("not on the second side")]
        else:
            case.result = [Error(printable(failed.message), printable(failed.kind))]
        suite.add_testcase(case)
    if doubtful and compared.doubts:
        case = TestCase("doubts", classname="rooflens compare")
        case.result = [Failure(printable("; ".join(compared.doubts)), "doubtful")]
        suite.add_testcase(case)
    document, file = JUnitXml("rooflens compare"), BytesIO()
    document.add_testsuite(suite)
    document.update_statistics()
    document.write(file, pretty=True)
    return file.getvalue()


def sentence(row: RunChange) -> str:
    """What became of a step, with its numbers."""
    seconds = f"{units.show(row.before_seconds, 's')} -> {units.show(row.after_seconds, 's')}"
    low, high = map(_percent, row.change.interval) if row.change.interval is not None else ("", "")
    interval = f", 95 % interval {low} to {high}" if low else ""
    ratio = "" if row.change.ratio is None else f" ({_percent(row.change.ratio)}{interval})"
    return f"{seconds}{ratio}{'' if row.p is None else f', p = {row.p:.2g}'}: {row.direction}"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
