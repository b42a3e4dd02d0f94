"""Whole layers that mamba_ssm runs by one function: the kernels in them, and the products around these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ScanKernel = Callable[..., Any]


def short_convolution(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None) -> Any:
    """The parameters of causal_conv1d's kernel."""


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    D: Tensor | None = None,  # noqa: N803
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
) -> Any:
    """The parameters of Mamba's kernel."""


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    D: Tensor | None = None,  # noqa: N803
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
) -> Any:
    """The parameters of Mamba 2's kernel."""


def mamba(convolve: ScanKernel, scan: ScanKernel, given: dict[str, Any]) -> Tensor:
    """`mamba_inner_fn`: convolution, projections of what it gives to dt, B and C, scan, projection of the output."""
    x, gate = given["xz"].chunk(2, dim=1)
    x = convolve(x, given["conv1d_weight"].squeeze(1), given.get("conv1d_bias"), activation="silu")
    rank, states = given["delta_proj_weight"].shape[1], given["A"].shape[-1]
    parts = F.linear(x.transpose(1, 2), given["x_proj_weight"])
    low, from_b, from_c = parts.split([rank, parts.shape[-1] - rank - states, states], dim=-1)
    low = _normed(low, given, "dt")
    dt = F.linear(low, given["delta_proj_weight"]).transpose(1, 2)
    b, c = given.get("B"), given.get("C")
    b = _normed(_shifted(from_b, given.get("B_proj_bias")), given, "b").transpose(1, 2) if b is None else b
    c = _normed(_shifted(from_c, given.get("C_proj_bias")), given, "c").transpose(1, 2) if c is None else c
    more = (given.get("D"), gate, given.get("delta_bias"), given.get("delta_softplus", True))
    scanned = scan(x, dt, given["A"], b, c, *more)
    return F.linear(scanned.transpose(1, 2), given["out_proj_weight"], given.get("out_proj_bias"))


def mamba2(convolve: ScanKernel, scan: ScanKernel, given: dict[str, Any]) -> Any:
    """`mamba_split_conv1d_scan_combined`: convolution, scan, the norm with its gate, projection of the output.

    Channels in front of the gate that no scan reads are a gated layer of their own.
    """
    parts, skip = given["zxbcdt"], given["D"]
    heads, width = (skip.shape[0], given["headdim"]) if skip.dim() == 1 else skip.shape
    inner, convolved, groups = heads * width, given["conv1d_weight"].shape[0], given.get("ngroups", 1)
    beside = (parts.shape[-1] - inner - convolved - heads) // 2
    up, gated, z, x, dt = parts.split([beside, beside, inner, convolved, heads], dim=-1)
    activation = given.get("activation", "silu")
    x = convolve(x.transpose(1, 2), given["conv1d_weight"], given.get("conv1d_bias"), activation=activation)
    states = (convolved - inner) // (2 * groups)
    x, b, c = x.transpose(1, 2).split([inner, groups * states, groups * states], dim=-1)
    norm, final = given.get("rmsnorm_weight"), given.get("return_final_states", False)
    x, z = x.unflatten(-1, (heads, width)), z.unflatten(-1, (heads, width))
    b, c = b.unflatten(-1, (groups, states)), c.unflatten(-1, (groups, states))
    more = (skip, z if norm is None else None, given["dt_bias"], given.get("initial_states"), final)
    scanned = scan(x, dt, given["A"], b, c, *more)
    output, state = scanned if final else (scanned, None)
    output = output.flatten(-2)
    if norm is not None:
        output = F.rms_norm(output * F.silu(z.flatten(-2)), norm.shape, norm, given.get("rmsnorm_eps", 1e-6))
    if beside:
        output = torch.cat([F.silu(up) * gated, output], dim=-1)
    if given.get("outproj_weight") is not None:
        output = F.linear(output, given["outproj_weight"], given.get("outproj_bias"))
    return (output, state) if final else output


def _shifted(tensor: Tensor, bias: Tensor | None) -> Tensor:
    return tensor if bias is None else tensor + bias


def _normed(tensor: Tensor, given: dict[str, Any], name: str) -> Tensor:
    """Normalised where the layer has a weight for it, as that of FalconMamba has."""
    weight = given.get(f"{name}_rms_weight")
    return tensor if weight is None else F.rms_norm(tensor, weight.shape, weight, given.get("b_c_dt_rms_eps", 1e-6))


LAYERS: dict[str, tuple[Callable[..., Any], Callable[[ScanKernel, ScanKernel, dict[str, Any]], Any]]] = {
    "mamba_inner_fn": (selective_scan_fn, mamba),
    "mamba_split_conv1d_scan_combined": (mamba_chunk_scan_combined, mamba2),
}
"""By name of the function: the scan in it, and the layer."""
