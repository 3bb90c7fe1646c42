"""The requests for scores, as both protocols bring them, and the answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.serving.tensors import Tensor


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A request for scores.

    Attributes:
        inputs: the samples.
        outputs: names of the labels that are asked for; none: all.
        version: of the model; empty: the one that is served.
        id: returned with the answer.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...] = ()
    version: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class InferAnswer:
    """The scores of n samples.

    Attributes:
        version: of the model that scored.
        scores: by label, float32 [n].
        id: of the request.
    """

    version: str
    scores: dict[str, NDArray[np.float32]]
    id: str
