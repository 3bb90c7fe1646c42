"""The base of all models: a torch module that computes outputs from embeddings and dense features, with their loss."""

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
    """The m samples of a step, as `Model.loss` receives them.

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
    parameters, which are the same on every worker. A model initialises itself from torch's default generator, which
    then has the job's seed. Its buffers are saved and exported with the parameters. They are constants, except those
    named in
    `buffer_rules`: "sum" for a buffer that accumulates sums over samples, "lead" for a buffer that changes with the
    iterations, independently of the samples (esd.worker.models.buffers).

    The output of a sample must depend on no other sample, because otherwise it would depend on the dispatch.

    Args:
        inputs: the shape of a sample.
        hidden: widths of the MLP's hidden layers, if it has one.

    Attributes:
        samples: the samples of the next forward pass, on which dropout depends; the caller of the model sets them.
        loss_function: the job's loss.

    Example:
        >>> class Linear(esd.Model):
        ...     def __init__(self, inputs, hidden):
        ...         super().__init__(inputs, hidden)
        ...         self.layer = torch.nn.Linear(inputs.width, len(inputs.labels))
        ...
        ...     def forward(self, embeddings, dense):
        ...         return self.layer(torch.cat((*embeddings.values(), dense), dim=1))
        >>> model = Linear(esd.load("model").module().inputs, hidden=())
        >>> model({"user": torch.zeros(2, 4), "item": torch.zeros(2, 4)}, dense=torch.zeros(2, 1)).shape
        torch.Size([2, 1])
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
        """Computes the outputs of m samples.

        Args:
            embeddings: by the name of the feature, float32 [m, D], or `Jagged` for a feature with pooling `list`.
            dense: float32 [m, d].

        Returns:
            float32 [m, L], or [m] with one label, in the form of the job's loss: logits by default. A model with a
            `loss` and `scores` of its own may return a tensor of any shape whose first axis is the samples.
        """

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Returns the loss of each sample, float32 [m]: `loss_function`, averaged over the labels.

        A model that overrides this method is trained with `--loss own`, and its job accepts any label.
        """
        labels = batch.labels
        losses = self.loss_function.losses(outputs.view_as(labels), labels)
        return losses.squeeze(1) if labels.shape[1] == 1 else losses.mean(dim=1)

    def label_losses(self, outputs: Tensor, batch: Batch, losses: Tensor) -> Tensor:
        """Returns the losses by label, float32 [m, L]; a model with a loss of its own has the same loss for all labels.

        Args:
            outputs: the outputs of the model.
            batch: the samples.
            losses: the result of `loss`, [m].
        """
        labels = batch.labels
        if type(self).loss is not Model.loss:
            return losses.unsqueeze(1).expand_as(labels)
        return self.loss_function.losses(outputs.view_as(labels), labels)

    def scores(self, outputs: Tensor) -> Tensor:
        """Returns the scores for the metrics, float [m, L] in 0..1: by `loss_function`, the predicted probabilities."""
        return self.loss_function.scores(outputs).view(outputs.shape[0], -1)
