"""What every model is: a module of torch that makes outputs of embeddings and dense features, and knows their loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from worker.models.dropout import Samples
from worker.models.inputs import ModelInputs


@dataclass(frozen=True, slots=True)
class Batch:
    """The m samples of a step, as `Model.loss` sees them.

    Attributes:
        embeddings: as in `Model.forward`.
        dense: float32 [m, d].
        labels: float32 [m, L].
    """

    embeddings: Mapping[str, Any]
    dense: Tensor
    labels: Tensor


class Model(nn.Module, ABC):
    """A model over embeddings.

    The rows come from the worker's cache, so a model has no embedding table of its own; `parameters()` are the dense
    parameters, which are the same on every worker. A model initialises itself; what it draws comes from torch's default
    generator, which has the job's seed then. Its buffers are constants, saved and exported with the parameters.

    What it makes of a sample must depend on no other sample, since that would depend on who trains which.

    Args:
        inputs: what a sample is made of.
        hidden: widths of the MLP's hidden layers, if it has one.

    Attributes:
        samples: whoever calls the model announces the samples here, on which dropout depends.
    """

    def __init__(self, inputs: ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.inputs = inputs
        self.hidden = hidden
        self.samples = Samples()

    @abstractmethod
    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """Returns the outputs of m samples.

        Args:
            embeddings: float32 [m, D] by the name of the feature.
            dense: float32 [m, d].

        Returns:
            float32 [m, L], or [m] with one label: the logits, unless `loss` and `scores` take something else. Its first
            axis must be the samples.
        """

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Returns the loss of each sample, float32 [m]: the binary cross-entropy, averaged over the labels."""
        labels = batch.labels
        losses = functional.binary_cross_entropy_with_logits(outputs.view_as(labels), labels, reduction="none")
        return losses.squeeze(1) if labels.shape[1] == 1 else losses.mean(dim=1)

    def scores(self, outputs: Tensor) -> Tensor:
        """Returns what the metrics see, float [m, L] in 0..1: the predicted probabilities."""
        return outputs.sigmoid().view(len(outputs), -1)
