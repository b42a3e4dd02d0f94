"""The work that rl.region counts, what counting leaves as it was, the example, and a GPU."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.region_clock import STEP, World, loader, nothing_is_left_open, run, samples, turned_world
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.regions.loop import Region

__all__ = ["nothing_is_left_open", "turned_world"]  # fixtures


class Net(nn.Module):
    """Everything whose result depends on state: batch norm, dropout, attention with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.norm(self.conv(x)).relu()).flatten(2).transpose(1, 2)
        output: torch.Tensor = self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))
        return output


def trained(trace: bool, optimizer: str) -> tuple[list[Any], Region | None]:
    """State after five steps, with or without one of them counted."""
    torch.manual_seed(0)
    model = Net()
    made = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) if optimizer == "sgd" else None
    update = made or torch.optim.AdamW(model.parameters())
    data: Any = [(torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))) for _ in range(5)]
    region = rl.region("train step", trace=model, skip=1, iterations=2) if trace else None
    losses = []
    for x, y in data if region is None else region.over(data):
        update.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        update.step()
        losses.append(loss.detach())
    state = [*losses, *model.state_dict().values(), *(p.grad for p in model.parameters())]
    state += [value for each in update.state.values() for value in each.values()]
    return [*state, torch.get_rng_state(), torch.rand(3)], region


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_counting_changes_no_bit_of_the_training(optimizer: str) -> None:
    from torch.nn.modules import module as hooks
    from torch.optim import optimizer as optimizers

    plain, _ = trained(False, optimizer)
    counted, region = trained(True, optimizer)
    assert region is not None
    assert region.records.where(source="estimate").records, "an iteration was counted"
    assert len(plain) == len(counted) > 30
    for one, other in zip(plain, counted, strict=True):
        assert torch.equal(one, other)
    assert not hooks._global_forward_hooks
    assert not hooks._global_forward_pre_hooks
    assert not optimizers._global_optimizer_pre_hooks
    assert not optimizers._global_optimizer_post_hooks


def small() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    return model, torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))


def counted_step(world: World, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Region:
    update = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    region = rl.region("train step", trace=model, skip=1, iterations=2)
    for x_again in region.over([x] * 5):
        world.now += STEP
        update.zero_grad()
        nn.functional.cross_entropy(model(x_again), y).backward()
        update.step()
    return region


def test_the_work_of_the_step_that_ran_is_that_of_the_estimate(world: World) -> None:
    model, x, y = small()
    region = counted_step(world, model, x, y)
    estimate = rl.estimate(
        model, inputs=x, mode="train", batch=4, loss=lambda out, _: nn.functional.cross_entropy(out, y)
    )
    counted = region.records.where(source="estimate")
    # Products: convolution 4 x 8 x 36 outputs of 27 multiply-adds, linear 4 x 5 of 288; backward twice that, less the
    # gradient of the images.
    convolution, linear = 2 * 4 * 8 * 36 * 27, 2 * 4 * 5 * 288
    assert counted.total("forward").matmul_flops == convolution + linear
    assert counted.total("backward").matmul_flops == convolution + 2 * linear
    for phase in ("forward", "backward", "optimizer"):
        assert counted.total(phase).flops == estimate.total(phase).flops, phase
    assert counted.parameters == estimate.parameters
    assert counted.coverage.uncounted == ()
    paths = {record.path for record in counted if record.scope == "op"}
    assert paths == {"0", "1", "2", "4", "(loop)", "(optimizer)"}
    (loss_gradient,) = (r for r in counted if r.name == "nll_loss_backward")
    assert (loss_gradient.path, loss_gradient.phase) == ("(loop)", "backward")


def test_the_iteration_that_is_counted_is_not_timed_and_shares_the_case_of_the_step(world: World) -> None:
    region = counted_step(world, *small())
    assert samples(region, "train step") == (3, 3)
    text = rl.table(region.records, width=200)
    assert "estimate + measure" in text
    assert "the work is that of one more iteration" in text
    assert "was not counted" not in text


def test_a_loop_that_ends_before_an_iteration_is_counted_says_so(world: World) -> None:
    model = nn.Linear(2, 2)
    region = rl.region("train step", trace=model, skip=1, iterations=2)
    run(region, world, 3)
    assert region.records.sources == ("measure",)
    assert "train step: the work was not counted: no iteration came after the timed ones" in region.records.notes


def test_a_block_within_the_loop_can_be_counted(world: World) -> None:
    model = nn.Linear(2, 3)
    for _ in range(5):
        with rl.region("train step", trace=model, skip=1, iterations=2, batch=4) as region:
            model(torch.zeros(4, 2)).sum().backward()
    # 4 x 3 x 2 multiply-adds forward, as many for the gradient of the weight; none for the input's.
    assert region.records.where(source="estimate").total().matmul_flops == 2 * (2 * 4 * 3 * 2)


@pytest.mark.parametrize("leaves", ["break", "raise"])
def test_leaving_the_loop_while_it_is_counted_leaves_nothing_behind(world: World, leaves: str) -> None:
    model = nn.Linear(2, 2)
    region = rl.region("train step", trace=model, skip=0, iterations=1)

    def loop() -> None:
        for n, x in enumerate(region.over(loader(world, 9))):
            model(x)
            if n == 1:
                assert len(_get_current_dispatch_mode_stack()) == 1
                if leaves == "raise":
                    raise KeyError
                break

    if leaves == "raise":
        with pytest.raises(KeyError):
            loop()
    else:
        loop()
    assert _get_current_dispatch_mode_stack() == []
    assert region.records.sources == ("measure",)
    for x in region.over(loader(world, 2)):  # and the next iteration is counted instead
        model(x)
    assert region.records.where(source="estimate").total().matmul_flops == 2 * 4 * 2 * 2


def test_checkpointed_work_is_recomputed_work(world: World) -> None:
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    region = rl.region("train step", trace=model, skip=0, iterations=1)
    for _ in region.over(loader(world, 3)):
        x = torch.zeros(4, 8, requires_grad=True)
        checkpoint(model, x, use_reentrant=False).sum().backward()
    total = region.records.where(source="estimate").total()
    once = 2 * 4 * 8 * 8
    assert (total.matmul_flops, total.recomputed_flops) == (3 * once, once)


def test_operations_that_cannot_be_described_run_and_are_listed(world: World) -> None:
    model = nn.Linear(2, 2)
    region = rl.region("train step", trace=model, skip=0, iterations=1)
    for _ in region.over(loader(world, 3)):
        with torch.no_grad():
            dense = torch.ones(3, 2).to_mkldnn().relu().to_dense()
    assert torch.equal(dense, torch.ones(3, 2))
    assert {"relu", "to_mkldnn", "_to_dense"} & set(region.records.where(source="estimate").coverage.uncounted)


@pytest.mark.filterwarnings("ignore")  # torch announces that these layers move to torchao
def test_packed_weights_are_those_of_the_estimate(world: World) -> None:
    """A weight of 32 x 64 bytes and a bias of 32 x 4; 3 rows of 64 fp32 numbers come in, 3 of 32 go out."""
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(64, 32)).eval(), {nn.Linear})
    region = rl.region("step", trace=model, skip=0, iterations=1)
    for _ in region.over(loader(world, 3)):
        with torch.no_grad():
            model(torch.ones(3, 64))
    counted = region.records.where(source="estimate")
    record = next(r for r in counted if r.kind == "matmul")
    assert record.work is not None
    assert (counted.parameters, record.work.bytes["dram"]) == (32 * 64 + 32, 32 * 64 + 32 * 4 + 4 * 3 * (64 + 32))


@pytest.mark.filterwarnings("default::DeprecationWarning")  # of torch.compile's own imports
def test_what_would_run_differently_is_refused() -> None:
    compiled: Any = torch.compile(nn.Linear(2, 2))
    in_place = nn.Sequential(nn.Linear(2, 2))
    in_place[0].compile()
    for model in (compiled, in_place):
        with pytest.raises(InvalidValue, match=r"is compiled.*give model= instead of trace="):
            rl.region("train step", trace=model)
        rl.region("train step", model=model)
    with pytest.raises(InvalidValue, match="several threads"):
        rl.region("train step", trace=nn.DataParallel(nn.Linear(2, 2)))


def test_the_cost_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import region_cost

    region_cost.main(iterations=20)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(region_cost.WAYS)
    assert all(line.split()[-2:-1] and float(line.split()[-2]) >= 0 for line in lines[1:])


EXAMPLE = Path(__file__).parents[1] / "examples" / "imagenet_region.py"


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_three_lines_measure_the_imagenet_example(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = EXAMPLE.read_text().splitlines(keepends=True)
    added = [line for line in lines if "# rooflens" in line]
    assert [line.rstrip()[-3:] for line in added] == ["1/3", "2/3", "3/3"]
    plain = ast.parse("".join(line for line in lines if line not in added))
    # Without them nothing of rooflens is left: neither its name nor what is called with it.
    names = {node.id for node in ast.walk(plain) if isinstance(node, ast.Name)}
    imported = {alias.name for node in ast.walk(plain) if isinstance(node, ast.Import) for alias in node.names}
    assert not names & {"rl", "rooflens", "region"}
    assert "rooflens" not in imported

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # where two runs agree to the last bit
    losses = []
    for tree in (plain, ast.parse("".join(lines))):
        namespace: dict[str, Any] = {"__name__": "example"}
        exec(compile(tree, str(EXAMPLE), "exec"), namespace)
        namespace |= {"WORKERS": 0, "CROP": 32}
        losses.append(namespace["main"]())
    assert losses[0] == losses[1], "the measured loop trains as the plain one does"
    assert "data loading:" in capsys.readouterr().out
    records = rl.read("out/imagenet_region.jsonl")
    (step,) = records.where(name="train step")
    assert (step.case.model, step.case.batch, step.case.mode) == ("ResNet", 8, "train")
    assert step.timing is not None
    assert len(step.timing.samples) == 10
    assert records.sources == ("estimate", "measure")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_step_is_timed_by_events_and_the_loop_by_the_host() -> None:
    model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048)).cuda()
    update = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    region = rl.region("train step", trace=model, skip=5, iterations=20)
    for x in region.over(torch.randn(512, 2048, device="cuda") for _ in range(40)):
        with rl.region("forward"):
            loss = model(x).square().mean()
        update.zero_grad()
        loss.backward()
        update.step()
    measured = {record.name: record.timing for record in region.records.where(source="measure")}
    step, iteration, forward = measured["train step"], measured["iteration"], measured["forward"]
    assert step is not None
    assert iteration is not None
    assert forward is not None
    assert (step.origin, forward.origin, iteration.origin) == ("cuda-events", "cuda-events", "monotonic")
    assert forward.median < step.median
    counted = region.records.where(source="estimate")
    once = 2 * 512 * 2048 * 2048
    assert counted.total("forward").matmul_flops == 2 * once
    assert counted.total("backward").matmul_flops == 3 * once
    assert counted.phases == ("forward", "backward", "optimizer")
    memory = region.records.where(name="train step").memory
    assert memory is not None
    assert memory.peak is not None
    assert memory.peak > 4 * 2 * 2048 * 2048
