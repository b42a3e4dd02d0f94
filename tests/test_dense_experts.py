"""Experts that are all computed for every token, by one batched product: the floor has those that are chosen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import rooflens as rl

EXPERTS, WIDTH, INNER, BATCH, BF16 = 8, 64, 96, 2, 2
UP, DOWN = WIDTH * 2 * INNER, INNER * WIDTH
"""Weights of one expert: gate and up together, and down."""


def llama4(folder: Path, num_hidden_layers: int = 1, **options: object) -> rl.RecordSet:
    """A step of Llama 4, with 1 of 8 experts."""
    config = {"model_type": "llama4_text", "hidden_size": WIDTH, "intermediate_size": INNER, "vocab_size": 100}
    config |= {
        "num_hidden_layers": num_hidden_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    }
    path = folder / "llama4.json"
    path.write_text(json.dumps(config | {"num_local_experts": EXPERTS, "num_experts_per_tok": 1}))
    return rl.estimate(f"hf:{path}", **{"batch": BATCH, "seq_len": 16, "dtype": "bf16"} | options)  # type: ignore[arg-type]


def products(records: rl.RecordSet, *, floor: bool = True, phase: str = "forward") -> tuple[float, float]:
    """Matrix FLOP and bytes of products with experts."""
    chosen = [r for r in records if r.scope == "op" and r.name == "bmm" and "expert" in r.path and r.phase == phase]
    works = [(work, r.calls) for r in chosen if (work := r.bound_work if floor else r.written) is not None]
    return sum(w.matmul_flops * n for w, n in works), sum(w.bytes["dram"] * n for w, n in works)


@pytest.mark.parametrize(("mode", "tokens"), [("decode", BATCH), ("prefill", BATCH * 16)])
def test_llama_4_needs_the_expert_of_each_token(tmp_path: Path, mode: str, tokens: int) -> None:
    pytest.importorskip("transformers")
    records = llama4(tmp_path, mode=mode)
    # In and out of both products: a row for each token, and as written one for each expert too.
    values = tokens * (WIDTH + 2 * INNER + INNER + WIDTH)
    hit = EXPERTS * (1 - (7 / 8) ** tokens)  # two tokens hit 1.875
    assert products(records, floor=False) == (
        2 * tokens * EXPERTS * (UP + DOWN),
        BF16 * EXPERTS * (values + UP + DOWN),
    )
    flops, moved = products(records)
    assert flops == 2 * tokens * (UP + DOWN)
    assert moved == pytest.approx(BF16 * (values + hit * (UP + DOWN)), abs=2)
    assert any("fair router" in note for record in records for note in record.notes)
    causes = {r.floor.cause for r in records if r.name == "bmm" and r.floor is not None}
    assert causes == {"idle experts"}
    text = " ".join(rl.explain(records, path="model.layers.0.feed_forward.experts").text.split())
    assert f"{tokens} tokens are sent to 1 of 8 experts each" in text


def test_training_writes_the_gradients_of_all_experts(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    tokens, hit = BATCH * 16, EXPERTS * (1 - (7 / 8) ** (BATCH * 16))
    flops, moved = products(llama4(tmp_path, mode="train"), phase="backward")
    assert flops == 2 * 2 * tokens * (UP + DOWN)  # of values and of weights
    values = tokens * (WIDTH + 2 * INNER + INNER + WIDTH)
    assert moved == pytest.approx(BF16 * (2 * values + (hit + EXPERTS) * (UP + DOWN)), abs=4)


@pytest.mark.parametrize("mode", ["decode", "prefill", "train"])
def test_products_between_mixtures_are_needed_in_full(tmp_path: Path, mode: str) -> None:
    # Their results reach the next mixture through norms and sums, and have sizes that the number of experts divides.
    pytest.importorskip("transformers")
    records = llama4(tmp_path, mode=mode, num_hidden_layers=3)
    others = [r for r in records if r.scope == "op" and r.name in ("mm", "addmm") and r.phase != "optimizer"]
    assert len(others) > 10
    assert all(r.bound_work is not None and r.bound_work.matmul_flops == r.work.matmul_flops for r in others if r.work)


class Mixture(torch.nn.Module):
    """Every token with every expert, by broadcasting; the router weighs the results, of which it chooses some."""

    def __init__(self, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = torch.nn.Linear(WIDTH, EXPERTS)
        self.experts = torch.nn.Parameter(torch.empty(EXPERTS, WIDTH, INNER))
        self.back = torch.nn.Parameter(torch.empty(EXPERTS, INNER, WIDTH))
        self.bias = torch.nn.Parameter(torch.empty(EXPERTS, 1, WIDTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        best, places = self.router(tokens).topk(self.chosen, dim=-1)
        scores = torch.zeros(len(tokens), EXPERTS).scatter(1, places, best.softmax(-1))
        rows = torch.baddbmm(self.bias, (tokens @ self.experts).relu(), self.back)
        return (rows * scores.T[:, :, None]).sum(0)


@pytest.mark.parametrize("chosen", [2, EXPERTS])
def test_another_mixture_that_broadcasts_its_tokens(chosen: int) -> None:
    tokens, fp32 = 4, 4
    records = rl.estimate(Mixture(chosen), inputs=torch.empty(tokens, WIDTH), dtype="fp32")
    ops = [r for r in records if r.name in ("bmm", "baddbmm")]
    assert sum(r.bound_work.matmul_flops for r in ops if r.bound_work) == 2 * tokens * chosen * 2 * DOWN
    # Tokens once; rows between the products written and read, and results written, for each choice; a bias each.
    hit = EXPERTS * (1 - (1 - chosen / EXPERTS) ** tokens)
    moved = tokens * WIDTH + tokens * chosen * (2 * INNER + WIDTH) + hit * (2 * DOWN + WIDTH)
    assert sum(r.bound_work.bytes["dram"] for r in ops if r.bound_work) == pytest.approx(fp32 * moved, abs=2)
    (relu,) = [r for r in records if r.name == "relu"]
    assert relu.bound_work is not None
    assert relu.bound_work.bytes["dram"] == fp32 * tokens * chosen * 2 * INNER


def test_gradients_of_chosen_rows_alone_are_needed() -> None:
    tokens, fp32 = 4, 4
    records = rl.estimate(Mixture(2), inputs=torch.empty(tokens, WIDTH), dtype="fp32", mode="train")
    ops = [r for r in records if r.name == "bmm" and r.phase == "backward"]
    # The tokens are an input, with no gradient: of `back` values and weights, of `experts` weights.
    assert sum(r.bound_work.matmul_flops for r in ops if r.bound_work) == 3 * 2 * tokens * 2 * DOWN
    hit = EXPERTS * (1 - (6 / 8) ** tokens)
    rows = 2 * tokens * (3 * INNER + 2 * WIDTH) + tokens * WIDTH
    moved = rows + (hit + 2 * EXPERTS) * DOWN
    assert sum(r.bound_work.bytes["dram"] for r in ops if r.bound_work) == pytest.approx(fp32 * moved, abs=3)


class Gated(torch.nn.Module):
    """Every token with every expert, as sums over indices are written: the matrices of all experts lie side by side."""

    def __init__(self, form: str, chosen: int, *, turned: bool) -> None:
        super().__init__()
        self.form, self.chosen, self.turned = form, chosen, turned
        self.router = torch.nn.Linear(WIDTH, EXPERTS, bias=False)
        sizes = (EXPERTS, INNER, WIDTH) if turned else (EXPERTS, WIDTH, INNER)
        self.gate, self.up = (torch.nn.Parameter(torch.empty(sizes)) for _ in range(2))
        self.down = torch.nn.Parameter(torch.empty(EXPERTS, INNER, WIDTH))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        best, places = self.router(tokens).topk(self.chosen, dim=-1)
        scores = torch.zeros(len(tokens), EXPERTS).scatter(1, places, best.softmax(-1))
        inner = f"nh,{'edh' if self.turned else 'ehd'}->{self.form}d"
        rows = torch.einsum(inner, tokens, self.gate).relu() * torch.einsum(inner, tokens, self.up)
        out = torch.einsum(f"{self.form}d,edh->{self.form}h", rows, self.down)
        return torch.einsum(f"ne,{self.form}h->nh", scores, out)


@pytest.mark.parametrize(("form", "turned"), [("en", False), ("ne", False), ("en", True), ("ne", True)])
def test_matrices_of_all_experts_side_by_side(form: str, turned: bool) -> None:
    tokens, chosen, fp32 = 5, 2, 4
    records = rl.estimate(Gated(form, chosen, turned=turned), inputs=torch.empty(tokens, WIDTH), dtype="fp32")
    ops = [r for r in records if r.name == "bmm"]
    products, weighing = 3 * DOWN * tokens * chosen, tokens * chosen * WIDTH
    assert sum(r.bound_work.matmul_flops * r.calls for r in ops if r.bound_work) == 2 * (products + weighing)
    assert (
        sum(r.written.matmul_flops * r.calls for r in ops if r.written) == 2 * (products + weighing) * EXPERTS / chosen
    )
    # Tokens of gate and up, and for each choice their rows; rows in and out of down; these and all scores to the sum.
    hit = EXPERTS * (1 - (1 - chosen / EXPERTS) ** tokens)
    moved = 2 * tokens * WIDTH + tokens * chosen * (3 * INNER + 2 * WIDTH) + 3 * hit * DOWN
    moved += tokens * EXPERTS + tokens * WIDTH
    assert sum(r.bound_work.bytes["dram"] * r.calls for r in ops if r.bound_work) == pytest.approx(fp32 * moved, abs=4)


def test_gradients_of_matrices_side_by_side() -> None:
    tokens, chosen, fp32 = 5, 2, 4
    step = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), Gated("en", chosen, turned=True))
    records = rl.estimate(step, inputs=torch.empty(tokens, WIDTH), dtype="fp32", mode="train")
    products = [r for r in records if r.name == "bmm" and r.phase == "backward"]
    inner = [r for r in products if r.call is not None and EXPERTS * INNER in r.call.tensor("mat2").shape[1:]]
    assert sum(r.calls for r in inner) == 4  # of gate and up, values and weights
    hit = EXPERTS * (1 - (1 - chosen / EXPERTS) ** tokens)
    rows = tokens * (chosen * INNER + WIDTH)
    moved = 2 * (rows + hit * DOWN) + 2 * (rows + EXPERTS * DOWN)
    assert sum(r.bound_work.bytes["dram"] * r.calls for r in inner if r.bound_work) == pytest.approx(
        fp32 * moved, abs=4
    )
    router = [r for r in records if r.name == "mm" and r.path == "1.router"]
    assert router
    assert all(r.bound_work == r.written for r in router)


class Shared(torch.nn.Module):
    """An expert of all tokens beside a router: its sizes may be divided by the number of experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = torch.nn.Linear(WIDTH, EXPERTS)
        self.up, self.down = torch.nn.Linear(WIDTH, EXPERTS * INNER), torch.nn.Linear(EXPERTS * INNER, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        shares = self.router(tokens).topk(2).values.sum(-1, keepdim=True)
        return torch.mul(self.down(self.up(tokens).relu()), shares)


def test_an_expert_of_all_tokens_is_no_mixture() -> None:
    records = rl.estimate(Shared(), inputs=torch.empty(4, WIDTH), dtype="fp32", mode="train")
    assert all(r.bound_work == r.written for r in records if r.scope == "op" and r.phase != "optimizer")


class Heads(torch.nn.Module):
    """Heads, as many as there are experts in the mixture before them, each with a matrix of its own."""

    def __init__(self, *, broadcast: bool) -> None:
        super().__init__()
        self.mixture, self.broadcast = Gated("en", 2, turned=False), broadcast
        self.query = torch.nn.Linear(WIDTH, EXPERTS * INNER)
        self.each = torch.nn.Parameter(torch.empty(EXPERTS, WIDTH, INNER))
        self.absorbed = torch.nn.Parameter(torch.empty(EXPERTS, INNER, 16))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mixed = tokens + self.mixture(tokens)
        of_heads: torch.Tensor = self.query(mixed).view(-1, EXPERTS, INNER).transpose(0, 1)
        return torch.matmul(mixed @ self.each if self.broadcast else of_heads, self.absorbed)


@pytest.mark.parametrize("mode", ["inference", "train"])
@pytest.mark.parametrize("broadcast", [False, True])
def test_heads_are_no_experts(mode: str, broadcast: bool) -> None:
    records = rl.estimate(Heads(broadcast=broadcast), inputs=torch.empty(5, WIDTH), dtype="fp32", mode=mode)
    heads = [r for r in records if r.path in ("", "query") and r.name in ("mm", "addmm", "bmm")]
    assert len(heads) > 1
    assert all(r.bound_work == r.written for r in heads)
    assert any(r.bound_work != r.written for r in records if r.path == "mixture" and r.name == "bmm")


class Chosen(torch.nn.Module):
    """A choice of places, and values that are repeated as often, but for no expert."""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return scores[:, :1].repeat(1, EXPERTS).relu() * scores.topk(2).indices.sum()


def test_a_choice_without_experts_changes_nothing() -> None:
    records = rl.estimate(Chosen(), inputs=torch.empty(4, EXPERTS), dtype="fp32")
    assert all(r.bound_work == r.written for r in records if r.scope == "op")
