"""Which labels a loss takes: one by one, and all of a range."""

from __future__ import annotations

import re

import numpy as np
import pytest

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.losses import Loss

TAKEN = {
    Loss.BCE: [0.0, 0.25, 1.0],
    Loss.MSE: [-7.0, 0.0, 12.0],
    Loss.POISSON: [0.0, 0.5, 40.0],
    Loss.HINGE: [0.0, 1.0],
    Loss.OWN: [-7.0, 0.5, 40.0],
}


def column(labels: list[float]) -> np.ndarray:
    return np.array(labels, np.float32)[:, None]


@pytest.mark.parametrize("loss", Loss, ids=lambda loss: loss.value)
def test_labels_in_range_are_taken(loss: Loss) -> None:
    loss.check_labels(column(TAKEN[loss]), ["label"], 0)
    loss.check_labels(column([]), ["label"], 0)


@pytest.mark.parametrize(
    ("loss", "label", "words"),
    [
        (Loss.BCE, 1.5, "in 0..1"),
        (Loss.BCE, -0.5, "in 0..1"),
        (Loss.POISSON, -1.0, "from 0 on"),
        (Loss.HINGE, 0.5, "0 and 1"),
    ],
)
def test_another_label_is_named_with_its_sample(loss: Loss, label: float, words: str) -> None:
    labels = np.concatenate([column(TAKEN[loss]), column([label])])
    two = np.concatenate([np.zeros_like(labels), labels], axis=1)
    message = f"label 'bought' of sample {40 + len(TAKEN[loss])} is {label:g}, the loss {loss.value} (--loss) takes "
    with pytest.raises(InvalidArgument, match=re.escape(f"{message}labels {words}")):
        loss.check_labels(two, ["clicked", "bought"], 40)


@pytest.mark.parametrize(
    ("loss", "bounds", "taken"),
    [
        (Loss.BCE, (0, 1), True),
        (Loss.BCE, (0, 5), False),
        (Loss.MSE, (-9, 9), True),
        (Loss.POISSON, (0, 100), True),
        (Loss.POISSON, (-1, 100), False),
        (Loss.HINGE, (0, 1), False),  # there are numbers between them
        (Loss.OWN, (-9, 9), True),
    ],
)
def test_all_labels_of_a_range_are_taken_or_it_is_refused(loss: Loss, bounds: tuple[float, float], taken: bool) -> None:
    if taken:
        loss.check_range(*bounds)
        return
    with pytest.raises(InvalidArgument, match=rf"labels in .*\(label-range of the schema\).*{loss.value} \(--loss\)"):
        loss.check_range(*bounds)
