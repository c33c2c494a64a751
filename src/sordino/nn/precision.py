"""How far the matrix products of torch round, as torch is set at this moment."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

# How far float32 numbers are rounded before they are multiplied.
INPUTS = {"none": 0.0, "ieee": 0.0, "tf32": 2.0**-11, "bf16": 2.0**-8}
_LEGACY = {"highest": 0.0, "high": 2.0**-11, "medium": 2.0**-8}
_SWITCHES = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")  # of the library behind torch on CPUs


def product_inputs(device: torch.device) -> float:
    """Return how far a float32 matrix product rounds its inputs; what is unknown counts as bfloat16."""
    room: Any = torch.backends.mkldnn if device.type == "cpu" else torch.backends.cuda
    coarse = INPUTS["bf16"]
    found = [INPUTS.get(room.matmul.fp32_precision, coarse)]
    if device.type == "cpu":
        found += [coarse for name in _SWITCHES if os.environ.get(name, "STRICT").upper() != "STRICT"]
    else:
        found.append(_legacy())
    return max(found)


def forward_inputs(device: torch.device) -> float:
    """Return how far matrix products *and convolutions* round their inputs, as torch is set now."""
    room: Any = torch.backends.mkldnn if device.type == "cpu" else torch.backends.cudnn
    return max(product_inputs(device), INPUTS.get(room.conv.fp32_precision, INPUTS["bf16"]))


def _legacy() -> float:
    try:
        return _LEGACY.get(torch.get_float32_matmul_precision(), INPUTS["bf16"])
    except RuntimeError:  # the old switch cannot be read where only the new one was set, and it is read above
        return 0.0


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a block in which a caller's autocast does not reach: sums of clipped gradients stay float32."""
    if not torch.is_autocast_enabled(device.type):  # to switch off what is off would cost host time each step
        return nullcontext()
    return torch.autocast(device.type, enabled=False)
