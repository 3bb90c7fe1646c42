"""The input of a model from lists of ids, and the gradients of their rows, against loops over samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from esd.services.domain.features import Feature, Pooling, numbered_ids
from esd.worker.models.inputs import Jagged
from esd.worker.training.pooling import embed

FEATURES = (
    Feature("one"),
    Feature("sum", pooling=Pooling.SUM, max_length=4),
    Feature("mean", pooling=Pooling.MEAN, max_length=4),
    Feature("list", pooling=Pooling.LIST, max_length=4),
)
DIMENSION = 3


@pytest.fixture
def lists():
    """Rows of five samples, the number of ids of each feature, and the rows of each list by sample and feature."""
    rng = np.random.default_rng(5)
    lengths = np.array([[1, 2, 3, 0], [1, 0, 0, 4], [1, 1, 1, 1], [1, 4, 2, 2], [1, 0, 4, 0]], np.uint32)
    rows = torch.from_numpy(rng.normal(size=(lengths.sum(), DIMENSION)).astype(np.float32)).requires_grad_()
    parts = torch.split(rows, lengths.ravel().tolist())
    return rows, lengths, [parts[4 * i : 4 * i + 4] for i in range(5)]


def by_hand(parts):
    """The same, list by list."""
    return {
        "one": torch.stack([each[0][0] for each in parts]),
        "sum": torch.stack([each[1].sum(0) for each in parts]),
        "mean": torch.stack([each[2].mean(0) if len(each[2]) else torch.zeros(DIMENSION) for each in parts]),
        "list": torch.stack([torch.cat([each[3], torch.zeros(4 - len(each[3]), DIMENSION)]) for each in parts]),
    }


def test_lists_are_pooled_or_become_sequences(lists):
    rows, lengths, parts = lists
    found, expected = embed(rows, lengths, FEATURES), by_hand(parts)
    sequences = found["list"]
    assert isinstance(sequences, Jagged)
    assert sequences.lengths.tolist() == [0, 4, 1, 2, 0]
    assert sequences.mask.sum(1).tolist() == sequences.lengths.tolist()
    torch.testing.assert_close(sequences.values, expected["list"], rtol=0, atol=0)
    for name in ("one", "sum", "mean"):
        torch.testing.assert_close(found[name], expected[name])


def test_every_row_gets_its_gradient(lists):
    rows, lengths, parts = lists
    found, expected = embed(rows, lengths, FEATURES), by_hand(parts)
    values = {name: each.values if isinstance(each, Jagged) else each for name, each in found.items()}
    weights = {name: torch.randn_like(each) for name, each in expected.items()}
    (gradient,) = torch.autograd.grad(sum((values[name] * weights[name]).sum() for name in weights), rows)
    (by_loops,) = torch.autograd.grad(sum((expected[name] * weights[name]).sum() for name in weights), rows)
    torch.testing.assert_close(gradient, by_loops)


def test_one_id_of_each_is_a_view(lists):
    rows = lists[0].detach()[:6]
    found = embed(rows, None, numbered_ids(3))
    assert found["1"].data_ptr() == rows[1].data_ptr()
    torch.testing.assert_close(found["1"], rows[[1, 4]], rtol=0, atol=0)


def test_a_list_that_happens_to_have_one_id_each_is_a_sequence(lists):
    rows = lists[0].detach()[:4]
    found = embed(rows, None, (FEATURES[0], FEATURES[3]))
    torch.testing.assert_close(found["list"].values, rows[1::2].unsqueeze(1), rtol=0, atol=0)
