"""Training in one process with nothing but torch, as a user without ESD would write it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.quality.plain_models import PLAIN_MODELS
from benchmarks.quality.samples import HISTORY, Samples
from esd.run.model import parse_hidden
from esd.run.options import RunOptions
from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import Pooling
from testbed.auc import exact_auc


def train(samples: Samples, chosen: RunOptions) -> tuple[float, float]:
    """Trains a model and returns AUC and normalised entropy of the held-out samples.

    Rows are uniform in +-1/sqrt(D) at first, like ESD's; torch.optim.SparseAdam trains them, torch.optim.Adam the rest.
    """
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    known = np.unique(np.concatenate((samples.trained.ids, samples.held_out.ids)))
    table = nn.Embedding(len(known), chosen.dim, sparse=True)
    nn.init.uniform_(table.weight, -(chosen.dim**-0.5), chosen.dim**-0.5)
    names = tuple(feature.name for feature in samples.features if feature.pooling is Pooling.ONE)
    model = PLAIN_MODELS[chosen.model](names, chosen.dim, len(samples.dense_features), parse_hidden(chosen.hidden))
    optimizers: tuple[torch.optim.Optimizer, ...] = (
        torch.optim.SparseAdam(table.parameters(), lr=chosen.learning_rate),
        torch.optim.Adam(model.parameters(), lr=chosen.learning_rate),
    )

    def logits_of(batch: SampleBatch) -> Any:
        places = torch.from_numpy(np.searchsorted(known, batch.ids))
        dense = torch.from_numpy(batch.dense)
        if batch.lengths is None:
            return model(table(places.view(len(batch), -1)), dense)
        padded, mask = _padded(places, torch.from_numpy(batch.lengths.astype(np.int64)).sum(1), len(names) + HISTORY)
        rows = table(padded)
        return model(rows[:, : len(names)], dense, rows[:, len(names) :], mask[:, len(names) :])

    for batch in samples.batches():
        for optimizer in optimizers:
            optimizer.zero_grad()
        labels = torch.from_numpy(batch.labels[:, 0])
        functional.binary_cross_entropy_with_logits(logits_of(batch), labels).backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()

    with torch.inference_mode():
        logits = torch.cat([logits_of(batch) for batch in samples.held_out_batches()]).double()
    labels = torch.from_numpy(samples.held_out.labels[:, 0]).double()
    loss = functional.binary_cross_entropy_with_logits(logits, labels)
    entropy = functional.binary_cross_entropy(labels.mean().expand_as(labels), labels)
    return exact_auc(logits.numpy(), labels.numpy()), float(loss / entropy)


def _padded(places: Tensor, lengths: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Returns the places of all ids of each sample, int64 [m, longest], and where there is one, bool of this shape."""
    mask = torch.arange(longest) < lengths[:, None]
    padded = torch.zeros(len(lengths), longest, dtype=torch.int64)
    padded[mask] = places
    return padded, mask
