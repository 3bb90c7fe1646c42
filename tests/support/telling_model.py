"""A model that logs in each iteration whether its process exports spans: torch and redis-py import the rest, too."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor

import esd
from esd.worker.models.inputs import join
from esd.worker.models.layers import mlp

_log = logging.getLogger(__name__)


class Net(esd.Model):
    """An MLP over all embeddings and dense features."""

    def __init__(self, inputs: esd.ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__(inputs, hidden)
        self.deep = mlp(inputs.width, hidden, len(inputs.labels))

    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """See esd.Model."""
        _log.info("forward", extra={"exports": "opentelemetry.exporter" in sys.modules})
        outputs: Tensor = self.deep(join(embeddings, dense))
        return outputs
