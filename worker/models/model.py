"""What every model is: a module of torch that makes outputs of embeddings and dense features, and knows their loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor, nn

from esd.services.domain.losses import Loss
from esd.worker.models.dropout import Samples
from esd.worker.models.inputs import ModelInputs
from esd.worker.models.losses import LOSSES, LossFunction


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
    generator, which has the job's seed then. Its buffers are saved and exported with the parameters. They are
    constants, but for those that `buffer_rules` names: "sum" for one that adds something up over samples, "lead" for
    one that changes with the iterations whatever the samples are (worker/models/buffers.py).

    What it makes of a sample must depend on no other sample, since that would depend on who trains which.

    Args:
        inputs: what a sample is made of.
        hidden: widths of the MLP's hidden layers, if it has one.

    Attributes:
        samples: whoever calls the model announces the samples here, on which dropout depends.
        loss_function: the job's.
    """

    buffer_rules: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, inputs: ModelInputs, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.inputs = inputs
        self.hidden = hidden
        self.samples = Samples()
        self.loss_function: LossFunction = LOSSES[Loss.BCE]

    @abstractmethod
    def forward(self, embeddings: Mapping[str, Any], dense: Tensor) -> Tensor:
        """Returns the outputs of m samples.

        Args:
            embeddings: float32 [m, D] by the name of the feature.
            dense: float32 [m, d].

        Returns:
            float32 [m, L], or [m] with one label: what the job's loss takes, logits by default. A model with a `loss`
            and `scores` of its own may return anything whose first axis is the samples.
        """

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Returns the loss of each sample, float32 [m]: `loss_function`, averaged over the labels.

        A model that replaces it is trained with `--loss own`, so that the job takes any label.
        """
        labels = batch.labels
        losses = self.loss_function.losses(outputs.view_as(labels), labels)
        return losses.squeeze(1) if labels.shape[1] == 1 else losses.mean(dim=1)

    def label_losses(self, outputs: Tensor, batch: Batch, losses: Tensor) -> Tensor:
        """Returns the losses label by label, float32 [m, L]; a model with a loss of its own has one for all labels.

        Args:
            outputs: of the model.
            batch: the samples.
            losses: what `loss` says of them, [m].
        """
        labels = batch.labels
        if type(self).loss is not Model.loss:
            return losses.unsqueeze(1).expand_as(labels)
        return self.loss_function.losses(outputs.view_as(labels), labels)

    def scores(self, outputs: Tensor) -> Tensor:
        """Returns what the metrics see, float [m, L] in 0..1: by `loss_function`, the predicted probabilities."""
        return self.loss_function.scores(outputs).view(len(outputs), -1)
