"""How each counter is called: in the plainest way that its documentation shows, on one module and its inputs.

A tool that reports multiply-adds is doubled. Where a tool reports both FLOP and multiply-adds, it is judged by the one
that comes closer to the closed form.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import Tensor, nn

Inputs = tuple[Tensor, ...]
Counter = Callable[[nn.Module, Inputs], tuple[float, ...]]
"""From a module in the mode asked for and its inputs to FLOP, in one or several readings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A counter.

    Attributes:
        name: as in the tables.
        peer: the requirements file and environment; None for what the main environment has.
        package: whose version is shown.
        forward: counts a forward pass.
        backward: counts a backward pass, where the tool can.
        device: where module and inputs lie.
        imports: modules to import before the first measurement.
    """

    name: str
    peer: str | None = None
    package: str
    forward: Counter
    backward: Counter | None = None
    device: str = "cpu"
    imports: tuple[str, ...] = ()


def rooflens(module: nn.Module, inputs: Inputs, phase: str) -> tuple[float, ...]:
    mode = "train" if module.training else "inference"
    found = import_module("rooflens").estimate(module, inputs=(inputs, {}), mode=mode, optimizer="none")
    return (found.total(phase).matmul_flops,)


def torchinfo(module: nn.Module, inputs: Inputs) -> tuple[float, ...]:
    mode = "train" if module.training else "eval"
    found = import_module("torchinfo").summary(module, input_data=list(inputs), mode=mode, verbose=0)
    return (2.0 * found.total_mult_adds,)


def thop(module: nn.Module, inputs: Inputs) -> tuple[float, ...]:
    return (2.0 * import_module("thop").profile(module, inputs=inputs, verbose=False)[0],)


def fvcore(module: nn.Module, inputs: Inputs) -> tuple[float, ...]:
    analysis = import_module("fvcore.nn").FlopCountAnalysis(module, inputs)
    return (2.0 * analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total(),)


def ptflops(module: nn.Module, inputs: Inputs, backend: str) -> tuple[float, ...]:
    # It writes an exception to the console and returns None; batch sizes are divided out of positional inputs.
    named = dict(zip(inspect.signature(module.forward).parameters, inputs, strict=False))
    count = import_module("ptflops").get_model_complexity_info
    macs, _ = count(
        module, (1,), input_constructor=lambda _: named, backend=backend, as_strings=False, print_per_layer_stat=False
    )
    return (2.0 * macs,)


def calflops(module: nn.Module, inputs: Inputs, back: bool = False) -> tuple[float, ...]:
    flops, macs, _ = import_module("calflops").calculate_flops(
        module, args=list(inputs), print_results=False, output_as_string=False, include_backPropagation=back
    )
    # With backward it multiplies forward by 1 + 2.
    return (flops * 2 / 3, 2 * macs * 2 / 3) if back else (flops, 2 * macs)


def deepspeed(module: nn.Module, inputs: Inputs) -> tuple[float, ...]:
    profiler = import_module("deepspeed.profiling.flops_profiler").FlopsProfiler(module)
    profiler.start_profile()
    module(*inputs)
    found = (profiler.get_total_flops(), 2.0 * profiler.get_total_macs())
    profiler.end_profile()
    return found


def flop_counter(module: nn.Module, inputs: Inputs) -> tuple[float, ...]:
    with import_module("torch.utils.flop_counter").FlopCounterMode(display=False) as counter:
        module(*inputs)
    return (counter.get_total_flops(),)


def flop_counter_backward(module: nn.Module, inputs: Inputs) -> tuple[float, ...]:
    loss = module(*inputs).sum()
    with import_module("torch.utils.flop_counter").FlopCounterMode(display=False) as counter:
        loss.backward()
    return (counter.get_total_flops(),)


def profiler(module: nn.Module, inputs: Inputs) -> tuple[float, ...]:
    return _profiled(lambda: module(*inputs))


def profiler_backward(module: nn.Module, inputs: Inputs) -> tuple[float, ...]:
    loss = module(*inputs).sum()
    return _profiled(loss.backward)


def _profiled(call: Callable[[], Any]) -> tuple[float, ...]:
    torch_profiler = import_module("torch.profiler")
    with torch_profiler.profile(activities=[torch_profiler.ProfilerActivity.CPU], with_flops=True) as profile:
        call()
    return (float(sum(event.flops for event in profile.key_averages())),)


TOOLS = (
    Tool(
        name="rooflens",
        package="rooflens",
        forward=lambda module, inputs: rooflens(module, inputs, "forward"),
        backward=lambda module, inputs: rooflens(module, inputs, "backward"),
        imports=("rooflens.api", "rooflens.sources.estimate", "torch._subclasses.fake_tensor"),
    ),
    Tool(name="torchinfo", peer="torchinfo", package="torchinfo", forward=torchinfo, imports=("torchinfo",)),
    Tool(name="THOP", peer="thop", package="thop", forward=thop, imports=("thop",)),
    Tool(name="fvcore", peer="fvcore", package="fvcore", forward=fvcore, imports=("fvcore.nn",)),
    Tool(
        name="ptflops",
        peer="ptflops",
        package="ptflops",
        forward=lambda module, inputs: ptflops(module, inputs, "pytorch"),
        imports=("ptflops",),
    ),
    Tool(
        name="ptflops aten",
        peer="ptflops",
        package="ptflops",
        forward=lambda module, inputs: ptflops(module, inputs, "aten"),
        imports=("ptflops",),
    ),
    Tool(
        name="calflops",
        peer="calflops",
        package="calflops",
        forward=calflops,
        backward=lambda module, inputs: calflops(module, inputs, back=True),
        imports=("calflops",),
    ),
    Tool(
        name="DeepSpeed",
        peer="deepspeed",
        package="deepspeed",
        forward=deepspeed,
        imports=("deepspeed.profiling.flops_profiler",),
    ),
    Tool(
        name="FlopCounterMode",
        package="torch",
        forward=flop_counter,
        backward=flop_counter_backward,
        imports=("torch.utils.flop_counter",),
    ),
    Tool(
        name="FlopCounterMode, meta",
        package="torch",
        forward=flop_counter,
        backward=flop_counter_backward,
        device="meta",
        imports=("torch.utils.flop_counter",),
    ),
    Tool(
        name="torch.profiler",
        package="torch",
        forward=profiler,
        backward=profiler_backward,
        imports=("torch.profiler",),
    ),
)
