"""Checks of FLOP and parameters against what arithmetic says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

from rooflens import units
from rooflens.checks.context import MOST_BESIDE, Context, close, fold, grouped
from rooflens.checks.prefix_factors import prefix_factor
from rooflens.checks.registry import Doubt, check, needs, of_each
from rooflens.reported.figures import ReportedFigure
from rooflens.reported.right_values import precision_of

OFF = 0.1
"""Counters of others differ in what they count beside matrix work, hardly ever by more."""
LEAST_COUNTED, LEAST_WITHOUT_TENSOR, LOW, HIGH = 0.5, 0.3, 0.7, 1.95
"""Counted over algorithmic FLOP. Tile padding has been seen up to 1.88; Winograd and FFT multiply less, down to 0.3."""
PADDED = 1.5
"""Executed over algorithmic FLOP that is common."""
SAME_WORK = 1.5
TWICE = 0.02
"""Counters of MACs and of FLOP differ in what they count beside matrix work."""
BACKWARD_SHARE = (0.4, 1.05)
"""Forward over backward FLOP: 1/2, and up to 1 for a model of one layer, whose input needs no gradient."""


@check(
    "flops-off",
    "warning",
    "compare layer by layer with `rooflens estimate MODEL --depth 3`, and state image size",
    "Stated FLOP are more than 10 % off, for another reason",
)
@check(
    "macs-as-flops",
    "error",
    "multiply by 2, or call the number MAC; a multiply-add is 2 FLOP",
    "Stated FLOP are half of the right ones: multiply-adds, or a smaller image",
)
@of_each("flops")
def stated_flops(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """Stated FLOP are half of the right ones, or neither right nor explained by a prefix.

    Right are those of the matrix work, or all.
    """
    expected, slack = context.expected(figure), OFF + figure.precision
    if expected is None or not expected.matmul or expected.flops is None:
        return
    right, most = expected.matmul, expected.flops
    if (1 - slack) * right <= value <= (1 + slack) * most or prefix_factor(figure, value, right):
        return
    if 0.45 * right <= value <= 0.55 * most:
        code, what = "macs-as-flops", "half of" if close(value, right / 2, 0.01) else "about half of"
        size = _other_size(value / right)
        why = f"multiply-adds were called FLOP (or the images were {size} in height and width); intensity and"
        why += " FLOP/s are halved"
    else:
        code, what = "flops-off", f"{fold(value / right)} times"
        why = _difference(context, figure, value, right)
    yield Doubt(
        figure.subject,
        f"{units.show(value, 'FLOP')} is {what} {units.show(right, 'FLOP')}: {why}",
        {"stated FLOP": value, "right FLOP": right, "ratio": value / right},
        code,
    )


def _difference(context: Context, figure: ReportedFigure, value: float, right: float) -> str:
    """What explains stated FLOP that are not the right ones."""
    slack = OFF + figure.precision
    if (figure.batch or 1) > 1 and close(value * (figure.batch or 1), right, slack):
        return f"it is that of one sample, not of {figure.batch}"
    whole = context.expected(figure, ("forward", "backward")) if len(figure.phases) == 1 else None
    if whole is not None and whole.matmul and close(value, whole.matmul, slack):
        return "it is that of forward and backward together"
    if _is_forward_alone(context, figure, value):
        return "it is that of forward alone"
    if close(value, 2 * right, slack):
        return "multiply-adds were counted as 2 FLOP twice"
    return (
        f"layers are missing or counted by another rule, or the images were {_other_size(value / right)} in height and"
        " width"
    )


def _other_size(ratio: float) -> str:
    return f"{fold(math.sqrt(ratio))} times as large"


@check(
    "flops-low",
    "warning",
    "look which kernels ran (Winograd, FFT), and whether every metric and launch is there",
    "Counted FLOP are below the algorithm's, by as much as a fast convolution may save",
)
@check(
    "flops-uncounted",
    "error",
    "collect tensor-core operations too (`rooflens counters`), of every launch",
    "Counted FLOP are below the algorithm's, by more than any fast algorithm saves",
)
@of_each("counted_flops")
def counted_flops(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """Counted FLOP are below the algorithm's: by as much as a fast convolution may save, or by more."""
    expected = context.expected(figure)
    right = None if expected is None else expected.matmul
    if not right or value >= LOW * right:
        return
    tensor = _uses_tensor_cores(context, figure)
    forward = "it is as much as that of forward alone" if _is_forward_alone(context, figure, value) else ""
    least = (LEAST_COUNTED if tensor else LEAST_WITHOUT_TENSOR) * right
    if value >= max(least, 0.0 if expected is None else (1 - OFF) * (expected.fewest or 0)):
        code, why = "flops-low", f"{forward}; " if forward else ""
        why += "Winograd or FFT convolutions do that, and so does a missing or misspelt metric"
    else:
        code, why = "flops-uncounted", "tensor-core work is not in these counters, " if tensor else ""
        why += f"{forward}, " if forward else ""
        samples = f"{value / right * (figure.batch or 1):.2g} of {figure.batch}"
        why += f"a metric is missing or misspelt, launches are missing, or fewer samples ran ({samples});"
        why += " performance and intensity are too low"
    yield Doubt(
        figure.subject,
        f"{units.show(value, 'FLOP')} counted is {fold(value / right)} of the {units.show(right, 'FLOP')} that the"
        f" algorithm needs: {why}",
        {"counted FLOP": value, "algorithmic FLOP": right, "ratio": value / right},
        code,
    )


def _is_forward_alone(context: Context, figure: ReportedFigure, value: float) -> bool:
    """True if FLOP that were counted for forward and backward are those of forward."""
    forward = context.expected(figure, ("forward",)) if "backward" in figure.phases else None
    return forward is not None and bool(forward.matmul) and close(value, forward.matmul or 0.0, 0.1)


def _uses_tensor_cores(context: Context, figure: ReportedFigure) -> bool:
    """True if tensor cores may have done the work; no fast algorithm then saves as much as on general lanes."""
    device = context.device(figure)
    if device is None:
        return False
    ceiling = device.ceiling(f"matmul.{precision_of(figure.loose_dtype, device)}")
    return ceiling is not None and ceiling.silicon == "tensor"


@check("flops-high", "warning", "count one step after warm-up, one level of each metric, and label the phases")
@of_each("counted_flops")
def flops_high(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """Counted FLOP are above what padding explains."""
    expected = context.expected(figure)
    if expected is not None and expected.flops and value > HIGH * expected.flops:
        ratio = value / expected.flops
        yield Doubt(
            figure.subject,
            f"{units.show(value, 'FLOP')} counted is {fold(ratio)} times the algorithm's:"
            f" {_surplus(context, figure, value, ratio)}",
            {"counted FLOP": value, "algorithmic FLOP": expected.flops, "ratio": ratio},
        )


def _surplus(context: Context, figure: ReportedFigure, value: float, ratio: float) -> str:
    """What explains counted FLOP that are too many."""
    whole = context.expected(figure, ("forward", "backward")) if figure.phases == ("forward",) else None
    reasons = []
    if whole is not None and whole.matmul and 1 - OFF < value / whole.matmul < PADDED:
        reasons.append("it is forward and backward together")
    if close(ratio, round(ratio), 0.03):
        reasons.append(f"{ratio:.0f} steps were counted, or a total was added to its parts")
    other = "several steps, tiles padded far, fp32 emulated by narrower products, or other work in the profile"
    return ", or ".join(reasons) or other


@check("counts-differ", "error", "count tensor-core operations on every device before comparing devices")
@needs("counted_flops")
def counts_differ(context: Context) -> Iterator[Doubt]:
    """The same step has different counted FLOP on two devices."""
    for same in grouped(context.stated("counted_flops"), "step"):
        least, most = min(same, key=lambda item: item[1]), max(same, key=lambda item: item[1])
        if least[0].machine != most[0].machine and most[1] > SAME_WORK * least[1] > 0:
            yield Doubt(
                f"{least[0].subject}; {most[0].subject}",
                f"the same step is {units.show(least[1], 'FLOP')} on {least[0].device} and"
                f" {units.show(most[1], 'FLOP')} on {most[0].device}: the counters do not see the same work, so the"
                " devices' performance, intensity and efficiency cannot be compared",
                {"least FLOP": least[1], "most FLOP": most[1], "ratio": most[1] / least[1]},
            )


@check("macs-or-flop", "warning", "say which is meant: a multiply-add is 2 FLOP, and 1 MAC")
@needs("flops", "counted_flops")
def twice_as_many(context: Context) -> Iterator[Doubt]:
    """The FLOP of one step are stated twice, and one number is twice the other; of known models others tell which."""
    unknown = (each for each in context.stated("flops", "counted_flops") if context.expected(each[0]) is None)
    for same in grouped(unknown, "step"):
        pairs = ((one, other) for one, other in permutations(same[:MOST_BESIDE], 2) if one[1] < other[1])
        for (less, half), (more, whole) in pairs:
            if close(whole, 2 * half, TWICE + less.precision + more.precision):
                yield Doubt(
                    f"{less.subject}; {more.subject}",
                    f"{units.show(whole, 'FLOP')} is {fold(whole / half)} times {units.show(half, 'FLOP')} of the same"
                    " step: multiply-adds in one, FLOP in the other; what is computed from them is off by 2",
                    {"less FLOP": half, "more FLOP": whole, "ratio": whole / half},
                )
                break


@check("parameters-off", "error", "count each parameter once; replicas on several devices are the same parameters")
@of_each("parameters")
def parameters_off(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """Stated parameters are not the model's."""
    right = context.right.parameters(figure)
    if right is None or close(value, right, 1e-3 + figure.precision) or prefix_factor(figure, value, right):
        return
    times = round(value / right)
    copies = times > 1 and close(value, times * right, 1e-3)
    why = f"{times} replicas hold the same parameters" if copies else "the model has others, or not all are counted"
    yield Doubt(
        figure.subject,
        f"{value:.0f} parameters are stated, {figure.model} has {right}: {why}",
        {"stated": value, "right": right, "ratio": value / right},
    )


@check("flop-ratio", "error", "count backward with formulas (`rooflens estimate --mode train`): profilers lack them")
@of_each("flop_ratio")
def flop_ratio(context: Context, figure: ReportedFigure, value: float) -> Iterator[Doubt]:
    """Forward over backward FLOP is not about one half."""
    low, high = BACKWARD_SHARE
    if figure.phase == "forward:backward" and not low <= value <= high:
        yield Doubt(
            figure.subject,
            f"forward is stated to have {value:.4g} times the FLOP of backward; it has about half, since backward takes"
            " two products per layer: the counter lacks formulas of backward operations",
            {"stated ratio": value, "right ratio": _right_ratio(context, figure)},
        )


def _right_ratio(context: Context, figure: ReportedFigure) -> float:
    # The ratio hardly depends on the image size, so that of the model's own serves.
    at_own_size = replace(figure, image=None)
    forward, backward = (context.expected(at_own_size, (phase,)) for phase in ("forward", "backward"))
    if forward is None or backward is None or not forward.matmul or not backward.matmul:
        return 0.5
    return forward.matmul / backward.matmul
