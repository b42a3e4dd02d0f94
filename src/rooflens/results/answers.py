"""What people ask of a step or of a whole answer, in their own words: times of tokens, rates, energies and costs."""

from __future__ import annotations

from collections.abc import Mapping

from rooflens.results.factors import FactorRatio
from rooflens.results.quantity import Quantity

_STEPS = ("inference", "train")
"""Modes that are answered in samples."""

TIME_TO_FIRST_TOKEN = Quantity(
    "time_to_first_token",
    "time to first token",
    "first token",
    unit="s",
    better="less",
    number=FactorRatio(dict.fromkeys(("prefill", "generate"), (("reading",), ()))),
    timed=True,
)
PROMPT_RATE = Quantity(
    "prompt_tokens_per_second",
    "prompt tokens per second",
    "prompt tokens /s",
    better="more",
    number=FactorRatio(dict.fromkeys(("prefill", "generate"), (("batch", "prompt"), ("reading",)))),
    timed=True,
)
TIME_PER_OUTPUT_TOKEN = Quantity(
    "time_per_output_token",
    "time per output token",
    "per token",
    unit="s",
    better="less",
    number=FactorRatio({"decode": (("writing",), ()), "generate": (("writing",), ("steps",))}),
    timed=True,
)
TIME_OF_LAST_TOKEN = Quantity(
    "time_of_last_token",
    "time of the last output token",
    "last token",
    unit="s",
    better="less",
    number=FactorRatio({"generate": (("last",), ())}),
)
TIME_PER_ANSWER = Quantity(
    "time_per_answer",
    "time of the whole answer",
    "answer",
    unit="s",
    better="less",
    number=FactorRatio({"generate": (("answer",), ())}),
    timed=True,
)
SEQUENCE_RATE = Quantity(
    "sequence_tokens_per_second",
    "tokens per second of one sequence",
    "tokens /s, one sequence",
    better="more",
    number=FactorRatio({"decode": (("output",), ("step",)), "generate": (("output",), ("answer",))}),
    timed=True,
)
TOKEN_RATE = Quantity(
    "tokens_per_second",
    "tokens per second of all sequences",
    "tokens /s, all",
    better="more",
    number=FactorRatio(
        {
            "decode": (("batch", "output"), ("step",)),
            "generate": (("batch", "output"), ("answer",)),
            "train": (("samples", "sequence"), ("step",)),
        }
    ),
    timed=True,
)
ENERGY_PER_TOKEN = Quantity(
    "energy_per_token",
    "energy per token at the power limit",
    "energy /token",
    unit="J",
    better="less",
    number=FactorRatio(
        {
            "prefill": (("power", "step"), ("batch", "prompt")),
            "decode": (("power", "step"), ("batch", "output")),
            "generate": (("power", "answer"), ("batch", "output")),
        }
    ),
    timed=True,
    of_bound=False,
)
ENERGY_PER_SAMPLE = Quantity(
    "energy_per_sample",
    "energy per sample at the power limit",
    "energy /sample",
    unit="J",
    better="less",
    number=FactorRatio(dict.fromkeys(_STEPS, (("power", "step"), ("samples",)))),
    timed=True,
    of_bound=False,
)
COST_OF_INPUT = Quantity(
    "cost_per_million_input_tokens",
    "cost of a million input tokens",
    "cost /M input",
    better="less",
    number=FactorRatio(
        dict.fromkeys(("prefill", "generate"), (("price", "reading", "million"), ("hour", "batch", "prompt")))
    ),
    timed=True,
)
COST_OF_OUTPUT = Quantity(
    "cost_per_million_output_tokens",
    "cost of a million output tokens",
    "cost /M output",
    better="less",
    number=FactorRatio(
        dict.fromkeys(("decode", "generate"), (("price", "writing", "million"), ("hour", "batch", "output")))
    ),
    timed=True,
)
COST_PER_ANSWER = Quantity(
    "cost_per_answer",
    "cost of an answer",
    "cost /answer",
    better="less",
    number=FactorRatio({"generate": (("price", "answer"), ("hour", "batch"))}),
    timed=True,
)
COST_PER_STEP = Quantity(
    "cost_per_step",
    "cost of a training step",
    "cost /step",
    better="less",
    number=FactorRatio({"train": (("price", "step"), ("hour",))}),
    timed=True,
)
COST_PER_SAMPLE = Quantity(
    "cost_per_sample",
    "cost of a sample",
    "cost /sample",
    better="less",
    number=FactorRatio(dict.fromkeys(_STEPS, (("price", "step"), ("hour", "samples")))),
    timed=True,
)
ENERGIES = (ENERGY_PER_TOKEN, ENERGY_PER_SAMPLE)
COSTS = (COST_OF_INPUT, COST_OF_OUTPUT, COST_PER_ANSWER, COST_PER_STEP, COST_PER_SAMPLE)

ANSWERS: Mapping[str, tuple[Quantity, ...]] = {
    "prefill": (TIME_TO_FIRST_TOKEN, PROMPT_RATE, ENERGY_PER_TOKEN, COST_OF_INPUT),
    "decode": (TIME_PER_OUTPUT_TOKEN, SEQUENCE_RATE, TOKEN_RATE, ENERGY_PER_TOKEN, COST_OF_OUTPUT),
    "generate": (
        TIME_TO_FIRST_TOKEN, PROMPT_RATE, TIME_PER_OUTPUT_TOKEN, TIME_OF_LAST_TOKEN, TIME_PER_ANSWER, SEQUENCE_RATE,
        TOKEN_RATE, ENERGY_PER_TOKEN, COST_OF_INPUT, COST_OF_OUTPUT, COST_PER_ANSWER,
    ),
}  # fmt: skip
"""What people ask of a step of each mode that is answered in tokens: samples say little there."""
SAMPLED: Mapping[str, tuple[Quantity, ...]] = {
    "inference": (ENERGY_PER_SAMPLE, COST_PER_SAMPLE),
    "train": (TOKEN_RATE, ENERGY_PER_SAMPLE, COST_PER_STEP, COST_PER_SAMPLE),
}
"""What people ask beside samples per second of the other modes."""
