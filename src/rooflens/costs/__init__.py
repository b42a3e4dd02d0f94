"""Formulas: from the shapes of an operation to its work. No tensors and no torch.

Conventions, written here once:

- One multiply-add is 2 FLOP.
- ``matmul`` work is products, convolutions, attention products and recurrent gates. Everything else is ``vector`` work
  (add, multiply, compare: 1 FLOP each) or ``special`` work (exp, log, sqrt, tanh, erf, sin ...: 1 FLOP each, whatever
  the hardware makes of it). The costs per element stand in one table per family.
- The precision of a unit is that of the arithmetic: element-wise work on 16-bit tensors is ``vector.fp32``.
- Integer and boolean element-wise operations do no FLOP; they move bytes.
- Bytes are compulsory traffic at ``dram``: every distinct input read once, every output written once. Gathers read what
  they fetch; fills read nothing.
- Attention is counted in full. The half that a causal kernel executes is given beside it.
- Backward counts the algorithm, without what a kernel recomputes for itself.
- An operation without a formula still has bytes; its name is in `Work.missing`.
"""

from rooflens.costs import (
    attention,
    convolution,
    elementwise,
    factorizations,
    fourier,
    matmul,
    movement,
    normalization,
    optimizers,
    pooling,
    quantized,
    recurrent,
    reduction,
    scans,
)
from rooflens.costs.cached import serving_needs
from rooflens.costs.calculation import Calculation, WorkTerm, calculate
from rooflens.costs.custom import register_operation
from rooflens.costs.dequantised import dequantising_needs
from rooflens.costs.experts import EXPERTS_HIT, expert_needs
from rooflens.costs.fusion import fused_bytes, optimizer_needs
from rooflens.costs.masks import UNKNOWN_MASK, has_unknown_mask, mask_needs, masked
from rooflens.costs.registry import Arithmetic, Cost, Demand, Need, arithmetic_of, cost, families, family_of, traffic
from rooflens.costs.scans import SCANS, code_work
from rooflens.costs.sizes import result_names
from rooflens.costs.weight_formats import WEIGHT_FORMATS, with_weights
from rooflens.costs.widened import needed_on, widened_needs
from rooflens.costs.workspaces import Workspaces, most_kept, workspaces
