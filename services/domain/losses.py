"""Losses by name, and the labels that each accepts, which are checked before a sample becomes part of a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import InvalidArgument


class Loss(Enum):
    """The comparison of a model's output with its label. A sample's loss is the mean over its labels.

    Example:
        >>> esd.Loss.BCE.check_labels(np.array([[0.0], [2.0]], np.float32), ["click"], first=0)
        Traceback (most recent call last):
        ...
        esd.services.domain.errors.InvalidArgument: label 'click' of sample 1 is 2, the loss bce (--loss) takes ...
    """

    BCE = "bce"  # binary cross-entropy of a logit, labels in 0..1
    MSE = "mse"  # squared error of a value, any label
    # The constant term of the likelihood is left out.
    POISSON = "poisson"  # negative log-likelihood of the logarithm of a rate, labels from 0 up
    HINGE = "hinge"  # the distance of a margin below 1, labels 0 and 1
    OWN = "own"  # the model's own, any label

    def check_labels(self, labels: NDArray[np.float32], names: Sequence[str], first: int) -> None:
        """Checks labels.

        Args:
            labels: finite, float32 [k, L].
            names: names of the L labels.
            first: position of the first sample in its stream, for the message.

        Raises:
            InvalidArgument: the loss does not accept a label; the message names the label and the sample.
        """
        if self not in _TAKEN:
            return
        words, takes = _TAKEN[self]
        taken = takes(labels)
        if taken.all():
            return
        sample, label = (int(each) for each in np.argwhere(~taken)[0])
        raise InvalidArgument(
            f"label {names[label]!r} of sample {first + sample} is {labels[sample, label]:g}, the loss {self.value} "
            f"(--loss) takes labels {words}"
        )

    def check_range(self, least: float, most: float) -> None:
        """Checks a range of labels.

        Raises:
            InvalidArgument: the loss does not accept all labels of the range; the message names both.
        """
        if self not in _TAKEN:
            return
        words, takes = _TAKEN[self]
        if self is Loss.HINGE or not takes(np.array([least, most])).all():
            raise InvalidArgument(
                f"labels in {least:g}..{most:g} (label-range of the schema) are not all taken by the loss {self.value} "
                f"(--loss), which takes labels {words}"
            )


# The labels that a loss accepts, in words and as a check of each; the other losses accept every finite label.
_TAKEN: dict[Loss, tuple[str, Callable[[NDArray[np.floating]], NDArray[np.bool_]]]] = {
    Loss.BCE: ("in 0..1", lambda labels: (labels >= 0) & (labels <= 1)),
    Loss.POISSON: ("from 0 on", lambda labels: labels >= 0),
    Loss.HINGE: ("0 and 1", lambda labels: (labels == 0) | (labels == 1)),
}
