"""Work that a worker need not wait for when it starts."""

from __future__ import annotations

import subprocess
import sys

from esd.services.domain.tables import OptimizerKind

TRAIN = """
import sys
import torch
from esd.services.domain.jobs import ModelSpec
from esd.services.domain.tables import OptimizerKind, OptimizerSpec
import esd.worker.service.app
from esd.worker.training.reducer import Alone
from esd.worker.training.dense import DenseParameters
from esd.worker.training.optimizers import JobOptimizer
from esd.worker.training.device import prepare_device

device = prepare_device("cpu", 1)
for kind in OptimizerKind:
    model = torch.nn.Linear(3, 1).to(device)
    spec = ModelSpec("own", (), OptimizerSpec(kind))
    dense = DenseParameters(model, Alone(), lambda buckets: JobOptimizer(buckets, spec, lambda _: 0.1))
    model(torch.ones(2, 3)).sum().backward()
    dense.wait()
    dense.step(0)
    print(kind.value, {"torch._dynamo", "torch._inductor", "sympy"} & sys.modules.keys())
"""


def test_the_compiler_of_torch_is_not_imported():
    trained = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True)
    assert trained.stdout.splitlines() == [f"{kind.value} set()" for kind in OptimizerKind]
