"""What a worker need not wait for when it starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from services.domain.tables import OptimizerKind

TRAIN = """
import sys
import torch
from services.domain.jobs import ModelSpec
from services.domain.tables import OptimizerKind, OptimizerSpec
import worker.service.app
from worker.training.all_reduce import DenseReducer
from worker.training.dense import DenseParameters
from worker.training.device import prepare_device

model = torch.nn.Linear(3, 1).to(prepare_device("cpu", 1))
dense = DenseParameters(model, ModelSpec("own", (), OptimizerSpec(OptimizerKind(sys.argv[1]))), DenseReducer(None))
model(torch.ones(2, 3)).sum().backward()
dense.wait()
dense.step(0.1)
print("torch._dynamo" in sys.modules, "torch._inductor" in sys.modules, "sympy" in sys.modules)
"""


@pytest.mark.parametrize("kind", list(OptimizerKind))
def test_the_compiler_of_torch_is_not_imported(kind):
    trained = subprocess.run([sys.executable, "-c", TRAIN, kind.value], capture_output=True, text=True, check=True)
    assert trained.stdout.split() == ["False", "False", "False"]
