"""Workspaces of the convolutions of real networks on a GPU, to compare with what a calibration estimates.

With `cudnn.benchmark` the first call with given sizes tries several algorithms, with the largest of their workspaces;
later calls use that of the fastest.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.options import Options
from benchmarks.table import show
from paceline.cost.families import Sizes
from paceline.cost.workload_tracing import DataShape, trace_workload
from paceline.cost.workspaces import measured_workspaces
from paceline.workload import resolve

IMAGES, SMALL_IMAGES = DataShape("image", (3, 224, 224), 1000, 1024), DataShape("image", (3, 32, 32), 10, 1024)
NETWORKS = (
    ("resnet50", IMAGES, 64), ("vgg16", IMAGES, 32), ("googlenet", IMAGES, 64), ("alexnet", IMAGES, 128),
    ("resnet20", SMALL_IMAGES, 256), ("benchmarks.own_networks:mobile", SMALL_IMAGES, 256),
)  # fmt: skip
AT_MOST = 18
"""Convolutions of each network."""


def convolutions(network: str, data: DataShape, batch: int) -> list[Sizes]:
    workload = resolve(network, {"batch": batch, "data": "digits"})
    found = trace_workload(workload, data, on_gpu=True).operations
    distinct = list(dict.fromkeys(o.sizes for o in found if o.family == "convolution"))
    return distinct[:: -(-len(distinct) // AT_MOST)]


def workspaces(sizes: Sizes, dtype: torch.dtype) -> dict[str, Any]:
    n, c, h, w, k, r, s, p, _, groups, biased = sizes
    stride = max(1, round(h / p))
    padding = max(0, -(-((p - 1) * stride + r - h) // 2)), max(0, -(-((p - 1) * stride + s - w) // 2))
    x = torch.randn(n, c, h, w, device="cuda", dtype=dtype, requires_grad=True)
    weight = torch.randn(k, c // groups, r, s, device="cuda", dtype=dtype, requires_grad=True)
    bias = torch.randn(k, device="cuda", dtype=dtype) if biased else None
    found: dict[str, Any] = {"sizes": sizes, "dtype": str(dtype)}

    def forward() -> torch.Tensor:
        return F.conv2d(x, weight, bias, stride=stride, padding=padding, groups=groups)

    found["forward first"], found["forward later"] = measured_workspaces(forward, x.device)
    y = forward()
    gradient = torch.ones_like(y)
    for name, of in (("input", x), ("weight", weight)):
        call = functools.partial(torch.autograd.grad, y, of, gradient, retain_graph=True)
        found[f"{name} first"], found[f"{name} later"] = measured_workspaces(call, x.device)
    return found


def run(options: Options) -> dict[str, Any]:
    if options.device.type != "cuda":
        show("workspaces: these are of a GPU; there is none here")
        return {}
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    results = []
    for network, data, batch in NETWORKS[:1] if options.quick else NETWORKS:
        for sizes in convolutions(network, data, batch):
            for dtype in (torch.float32, torch.bfloat16):
                results.append({"network": network, **workspaces(sizes, dtype)})
                show(json.dumps(results[-1]))
    return {"workspaces": results}
