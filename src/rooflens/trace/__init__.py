"""A step on fake tensors becomes operations: shapes, module path, phase and memory. Nothing is computed.

Reads torch; the operations that come out do not need it.
"""

from rooflens.trace.tracer import trace
