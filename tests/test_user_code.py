"""What a user's function sets, replaces, returns and says: no wrong number without a word, no endless message."""

from __future__ import annotations

import collections
import functools
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import rooflens as rl
from rooflens.capacity import asked_devices, searched
from rooflens.errors import (
    LONGEST,
    InvalidValue,
    ModelError,
    RooflensError,
    cut,
    exit_code,
    first_line,
    message_of,
)
from rooflens.models import CallAgain, split_inputs, workload
from rooflens.models.installed import is_own_function
from rooflens.models.load import find
from rooflens.records import Trace
from rooflens.running.endings import last_words
from rooflens.running.jobs import Refused
from rooflens.runs.run import Request
from rooflens.trace import trace


def own_file(folder: Path, body: str) -> str:
    path = folder / "own.py"
    path.write_text(f"import torch\nfrom torch import nn\n{body}\n")
    return f"{path}:build"


def traced(name: str, **more: Any) -> Trace:
    """What a worker sees of a user's file, here; the tests' own settings are put back."""
    asked = workload(Request(model=name, **more))
    return trace(asked.untouched_steps()(asked.runs[0]))


X = torch.ones(2, 2)
LAYER = "nn.Linear(4, 4), torch.randn(2, 4)"
SETS = {
    "the default type to float64": ("torch.set_default_dtype(torch.float64)", "the dtype of the case decides"),
    "the default device to cuda": ("torch.set_default_device('cuda')", "the device of the case decides"),
    "autocast to bfloat16 on cpu": ("torch.set_autocast_enabled('cpu', True)", "the dtype of the case decides (amp-"),
    "TF32 for products to on": ("torch.set_float32_matmul_precision('high')", "the dtype of the case decides (fp32,"),
    "TF32 for cuDNN to off": ("torch.backends.cudnn.allow_tf32 = False", "the dtype of the case decides (fp32,"),
    "gradients to off": ("torch.set_grad_enabled(False)", "the mode of the case decides"),
    "inference mode to on": (
        "torch.k = torch.inference_mode(); torch.k.__enter__()",
        "the mode of the case decides",
    ),
    "deterministic algorithms to on": ("torch.use_deterministic_algorithms(True)", "a case runs without them"),
    "anomaly detection to on": ("torch.autograd.set_detect_anomaly(True)", "a case runs without it"),
}


def switches() -> tuple[Any, ...]:
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_autocast_enabled("cpu"),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_anomaly_enabled(),
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
    )


@pytest.mark.parametrize("at_import", [True, False])
@pytest.mark.parametrize("what", SETS)
def test_what_a_file_sets_is_not_used_and_is_said(what: str, at_import: bool, tmp_path: Path) -> None:
    code, decides = SETS[what]
    body = f"{code}\n" if at_import else ""
    body += "def build():\n" + ("" if at_import else f"    {code}\n") + f"    return {LAYER}"
    before = switches()
    done = traced(own_file(tmp_path, body), mode="train")
    assert switches() == before
    own = "own.py" if at_import else "own.py:build"
    assert any(note.startswith(f"{own} sets {what}, which is not used: {decides}") for note in done.notes)
    # A training step without gradients would have no backward; 2 x 4 outputs of fp32 have 4 bytes each.
    assert {operation.phase for operation in done.operations} == {"forward", "backward", "optimizer"}
    assert next(o.call.writes for o in done.operations if o.call.name == "addmm") == 2 * 4 * 4


def test_tensors_of_another_type_are_brought_to_the_type_of_the_case_and_that_is_said(tmp_path: Path) -> None:
    body = "def build():\n    return nn.Linear(4, 4).double(), torch.randn(2, 4).bfloat16()"
    name = own_file(tmp_path, body)
    done = traced(name)
    # 2 x 4 inputs, 4 x 4 weights and 4 biases of 4 bytes
    assert [o.call.reads for o in done.operations] == [4 * (8 + 16 + 4)]
    (note,) = done.notes
    assert note.startswith("own.py:build gives tensors in bfloat16, float64, which are brought to float32, since the")
    half = traced(name, dtype="bf16")
    assert ([o.call.reads for o in half.operations], half.notes) == ([2 * (8 + 16 + 4)], ())
    own = traced(own_file(tmp_path, "def build():\n    return nn.Linear(4, 4).double(), torch.randn(2, 4).double()"),
                 dtype="as-is")  # fmt: skip
    assert ([o.call.reads for o in own.operations], own.notes) == ([8 * (8 + 16 + 4)], ())


@pytest.mark.parametrize(
    ("inputs", "shapes"),
    [
        ("torch.randn(7, 4)", "[7, 4]"),  # samples per second would be 4 over the time of 7
        ("{'input': torch.randn(1, 9, 4)}", "[1, 9, 4]"),
        ("torch.randn(5, batch, 4)", ""),
        ("torch.randn(3 * batch, 4)", ""),  # packed
    ],
)
def test_inputs_that_do_not_follow_the_batch_are_told(inputs: str, shapes: str, tmp_path: Path) -> None:
    name = own_file(tmp_path, f"def build(batch=1): return nn.Linear(4, 2), {inputs}")
    told = [note for note in traced(name, batch=8).notes if "no input has the batch" in note]
    expected = f"no input has the batch, 8 (shapes: {shapes}): what counts per sample may be wrong"
    assert told == ([expected] if shapes else [])
    assert not [note for note in traced(name, batch=1).notes if "batch" in note]


def test_what_a_model_sets_while_it_runs_is_said() -> None:
    class Sets(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.set_default_dtype(torch.float64)
            return super().forward(x)

    note = "Sets sets the default type to float64 while it runs: what followed in the step ran so"
    module, x = Sets(4, 4), torch.randn(2, 4)
    assert any(each.startswith(note) for each in rl.estimate(module, inputs=x).notes)
    measured = rl.measure(module, inputs=x, device="cpu", budget=0.02)
    assert any(each.startswith(note) for record in measured for each in record.notes)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_autocast_within_a_model_is_said_where_the_case_names_another_type(device: str) -> None:
    class Casts(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(device, torch.bfloat16):
                return super().forward(x)

    module, x = Casts(4, 4), torch.randn(2, 4)
    note = "Casts turns autocast to bfloat16 on for parts of itself, which ran so whatever the case says"
    notes = {dtype: rl.estimate(module, inputs=x, dtype=dtype).notes for dtype in ("fp32", "amp-bf16", "as-is")}
    assert notes == {"fp32": (note,), "amp-bf16": (), "as-is": ()}


def test_the_mode_of_the_case_decides_whatever_mode_the_function_leaves_the_module_in(tmp_path: Path) -> None:
    body = "def build():\n    return nn.Sequential(nn.Dropout(), nn.Linear(4, 4)).{}(), torch.randn(2, 4)"
    names = {mode: [o.call.name for o in traced(own_file(tmp_path, body.format("train")), mode=mode).operations]
             for mode in ("inference", "train")}  # fmt: skip
    assert "native_dropout" not in names["inference"]
    assert "native_dropout" in names["train"]
    again = [o.call.name for o in traced(own_file(tmp_path, body.format("eval") + "  # eval"), mode="train").operations]
    assert again == names["train"]


WRAPS = """
def build(batch=2):
    plain = torch.nn.functional.linear
    def twice(*args):
        plain(*args)
        return plain(*args)
    torch.nn.functional.linear = twice
    return nn.Linear(4, 4), torch.randn(batch, 4)
"""
READS = WRAPS.replace("return nn.Linear(4, 4),", "return nn.Linear(4, int(torch.tensor(4))),")
GROWS = "MADE = []\ndef build(batch=2):\n    MADE.append(1)\n"
GROWS += "    return nn.Sequential(*(nn.Linear(4, 4) for _ in MADE)), torch.randn(batch, 4)"


def test_each_call_of_a_function_sees_a_fresh_process(tmp_path: Path) -> None:
    """One that wraps a function of torch, and reads a value, so that it is called once more."""
    # Two products of 4 x 4 for each of two rows, since the function is wrapped once.
    assert rl.estimate(own_file(tmp_path, READS)).total().matmul_flops == 2 * 2 * 2 * 4 * 4


def test_a_measured_model_is_made_by_one_call_in_a_process_of_its_own(tmp_path: Path) -> None:
    counts = GROWS.replace("nn.Linear(4, 4) for", "Counted(4, 4) for").replace(
        "MADE = []",
        "MADE = []\nclass Counted(nn.Linear):\n    def forward(self, x):\n        assert len(MADE) == 1\n"
        "        return super().forward(x)",
    )
    counts = "torch.set_num_threads(3)\n" + counts.replace(
        "    MADE.app", "    torch.backends.cudnn.benchmark = True\n    MADE.app"
    )
    found = rl.measure(own_file(tmp_path, counts), batch=[1, 2], device="cpu", budget=0.02)
    assert (found.failures, {case.batch for case in found.cases}) == ((), {1, 2})
    # What no case decides holds while the step runs, and is in its environment.
    assert found.environment is not None
    assert (found.environment.machine["threads"], found.environment.flags["cudnn benchmark"]) == (3, True)


def test_in_a_worker_a_further_call_is_asked_for(tmp_path: Path) -> None:
    reads = "def build():\n    return nn.Linear(4, int(torch.tensor(4).item())), torch.randn(2, 4)"
    name = own_file(tmp_path, reads)
    asked = replace(workload(Request(model=name)), anew=True)
    with pytest.raises(CallAgain) as again:
        asked.untouched_steps()(asked.runs[0])
    assert again.value.place == "inputs"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (WRAPS, "replaces torch.nn.functional.linear, and would do so once more"),
        ("import helper_of_own as helper\n" + GROWS.replace("MADE", "helper.MADE").replace("helper.MADE = []\n", ""),
         "gives another model after some calls"),
    ],
)  # fmt: skip
def test_a_search_for_a_batch_notices_what_its_calls_leave_behind(
    body: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn.functional, "linear", torch.nn.functional.linear)  # put back afterwards
    (tmp_path / "helper_of_own.py").write_text("MADE = []\n")
    with pytest.raises(ModelError, match=message):
        searched(Request(model=own_file(tmp_path, body), batch=1), asked_devices("t4"), None, None)


def test_a_search_takes_hooks_and_counters_of_torch_for_no_replacement(tmp_path: Path) -> None:
    body = "def build(batch=1):\n    net = nn.Linear(4, 4)\n    net.register_forward_hook(lambda *_: None)\n"
    body += "    return net, torch.randn(batch, int(torch.tensor(4)))"  # a value, so that it is called once more
    (fit,) = searched(Request(model=own_file(tmp_path, body), batch=1), asked_devices("t4"), None, None)
    assert fit.batch is not None
    assert fit.batch > 1


def test_own_functions_are_told_from_those_of_packages() -> None:
    own = [traced, lambda: None, functools.partial(traced), staticmethod(traced), property(lambda _: None), Pair(X, X)]
    installed = [torch.relu, nn.functional.linear, nn.Linear.forward, functools.partial(torch.relu), cut, len]
    assert [is_own_function(one) for one in own] == [True] * len(own)
    assert [is_own_function(one) for one in installed] == [False] * len(installed)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("None", "None, as a function without a return does;"),
        ("nn.Linear(4, 4)", "a module (Linear) without inputs;"),
        ("nn.Linear", "the class Linear;"),
        ("{'model': nn.Linear(4, 4), 'x': 1}", "a dict with 'model', 'x', which does not say what the module is;"),
        ("(torch.ones(1), nn.Linear(4, 4))", "(Tensor, Linear), whose module is not the first;"),
        (
            "(nn.Linear, torch.ones(1))",
            "(the class Linear, Tensor), whose first value is a class and no instance of it;",
        ),
        ("(1, 2)", "(int, int), whose first value is no module;"),
        ("(nn.Linear(4, 4), None)", "(Linear, None), whose second value is no input;"),
        ("(nn.Linear(4, 4), nn.Linear(4, 4))", "(Linear, Linear), whose second value is no input;"),
        ("(nn.Linear(4, 4),)", "one value, (Linear);"),
        ("(nn.Linear(4, 4), 1, 2, 3)", "4 values, (Linear, int, int, int);"),
        ("(nn.Linear(4, 4), torch.ones(1), torch.ones(1))", "(Linear, Tensor, Tensor): of three values the second is"),
        ("(nn.Linear(4, 4), {1: torch.ones(1)})", "(Linear, dict), with 1 as the name of an input, which is no word;"),
        ("iter(())", "tuple_iterator;"),
    ],
)
def test_what_a_function_returned_is_told(returned: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as error:
        traced(own_file(tmp_path, f"def build():\n    return {returned}"))
    assert str(error.value).split(" returned ", 1)[1].startswith(message)
    assert "it has to return (module, inputs)" in str(error.value)


class Pair(NamedTuple):
    x: torch.Tensor
    mask: torch.Tensor


class Named(nn.Module):
    def forward(self, mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x @ mask


class Positional(nn.Module):
    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return first @ second


class Whole(nn.Module):
    def forward(self, batch: Pair, scale: float = 2.0) -> torch.Tensor:
        return batch.x @ batch.mask * scale


@pytest.mark.parametrize("module", [Named(), Positional(), Whole()])
def test_a_named_tuple_is_given_by_name_by_position_or_as_one_argument(module: nn.Module) -> None:
    pair = Pair(torch.randn(2, 8), torch.randn(8, 3))
    assert module(*split_inputs(pair, module)[0], **split_inputs(pair, module)[1]).shape == (2, 3)
    assert rl.estimate(module, inputs=pair).total().matmul_flops == 2 * 2 * 8 * 3
    assert rl.measure(module, inputs=pair, device="cpu", budget=0.02).cases


def test_a_packed_sequence_and_a_users_mapping_are_one_argument_or_several() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, 4), torch.randn(2, 4)])
    assert split_inputs(packed, nn.LSTM(4, 4)) == ((packed,), {})
    words = collections.UserDict(mask=torch.ones(8, 3), x=torch.ones(2, 8))
    assert split_inputs(words, Named()) == ((), dict(words))
    assert split_inputs(words, Whole()) == ((words,), {})
    with pytest.raises(InvalidValue, match="the inputs are None"):
        split_inputs(None)


LONG = 100_000


def test_what_users_code_says_is_cut_in_the_middle(tmp_path: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    text = "a" * LONG + "b" * LONG
    told = cut(text)
    assert (told[:3], told[-3:], len(told) < LONGEST + 60) == ("aaa", "bbb", True)
    assert f"[... {2 * LONG - LONGEST:,} characters are cut here ...]" in told
    assert message_of(ValueError(text)) == first_line(ValueError(text)) == told
    assert message_of(Mute()) == first_line(Mute()) == "no message, since making it raised ValueError"
    assert exit_code(SystemExit(text)) == told
    assert exit_code(SystemExit()) == "0"
    assert len(last_words([text.encode()[-60_000:]])) < 400
    assert len(Refused.of(InvalidValue(text)).message) < 4100


RAISES = """
class Net(nn.Module):
    def forward(self, x):
        raise {}('x' * 100_000)

def build():
    return Net(), torch.ones(1)
"""


@pytest.mark.parametrize(
    "body",
    [
        "raise ValueError('x' * 100_000)",
        "import sys\nsys.exit('x' * 100_000)",
        "def build():\n    raise type('E' * 100_000, (Exception,), {})('x' * 100_000)",
        RAISES.format("KeyError"),
        RAISES.format("SystemExit"),
        "def build():\n    return nn.Linear(4, 4), {'x' * 100_000: torch.ones(1)}",
    ],
)
def test_no_message_of_users_code_is_endless(body: str, tmp_path: Path) -> None:
    with pytest.raises(RooflensError) as error:
        traced(own_file(tmp_path, body))
    message = Refused.of(error.value).message
    assert len(message) < 4200
    assert "characters are cut here" in message


def test_a_process_that_ends_itself_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the worker process ended by itself with code 0 before it gave an answer"):
        rl.estimate(own_file(tmp_path, "import os\nos._exit(0)"))


def test_a_file_without_a_function_is_told_its_functions_and_does_not_run(tmp_path: Path) -> None:
    file = tmp_path / "nets.py"
    file.write_text("1 / 0\ndef _helper(): ...\ndef small(): ...\ndef large(batch=1): ...\n")
    with pytest.raises(rl.RooflensError, match=r"nets\.py:small; it has small, large"):
        find(str(file))
    file.write_text("def (")
    with pytest.raises(rl.RooflensError, match=r"name the function that makes it: .*nets\.py:build$"):
        find(str(file))
    with pytest.raises(rl.RooflensError, match="there is no such file"):
        find(str(tmp_path / "none.py"))
