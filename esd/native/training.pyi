"""The update of the embedding rows in a worker's cache after a backward pass, in place and without the GIL.

Arrays are C-contiguous. A cache has C slots of W floats, which are a row's D values and its optimizer state. The
samples of a micro-batch have N ids, sample by sample, and u distinct rows in the slots `slots`, uint32 [u], all
different. Id i belongs to row `inverse[i]`, uint32 [N], and contributes the gradient `gradients[i]`, float32 [N, D].
The gradients of one row are added up in the order of the ids.

`contributors`, uint64 [u] or [u, 2], holds the workers that train each row, as bits. A row with one bit takes a step
of the optimizer, with the formulas of services/domain/tables.py. For a row with more bits, the slot's first D floats
become the sum of its gradients, which the parameter server adds to the sums of the other workers. A row without bits is
replicated: it stays unchanged, and the sums of such rows go to `shared`, float32 [h, D], in their order.

With `gathered`, float32 [C, D], every row takes a step, even if other workers train it, too, and its gradient is added
to its slot in `gathered`.

After its step, a row's values are scaled down to the Euclidean norm `max_norm` if theirs is larger; 0 stands for no
limit.

Shapes that do not fit, and slots or rows out of range, raise ValueError before anything is changed.
"""

import numpy as np
from numpy.typing import NDArray

def sgd(
    cache: NDArray[np.float32],
    slots: NDArray[np.uint32],
    contributors: NDArray[np.uint64],
    inverse: NDArray[np.uint32],
    gradients: NDArray[np.float32],
    shared: NDArray[np.float32],
    learning_rate: float,
    gathered: NDArray[np.float32] | None = None,
    max_norm: float = 0.0,
) -> None:
    """Takes one step of SGD; W = D."""

def rowwise_adagrad(
    cache: NDArray[np.float32],
    slots: NDArray[np.uint32],
    contributors: NDArray[np.uint64],
    inverse: NDArray[np.uint32],
    gradients: NDArray[np.float32],
    shared: NDArray[np.float32],
    learning_rate: float,
    epsilon: float,
    gathered: NDArray[np.float32] | None = None,
    max_norm: float = 0.0,
) -> None:
    """Takes one step of row-wise Adagrad; W = D + 1."""

def adam(
    cache: NDArray[np.float32],
    slots: NDArray[np.uint32],
    contributors: NDArray[np.uint64],
    inverse: NDArray[np.uint32],
    gradients: NDArray[np.float32],
    shared: NDArray[np.float32],
    step: int,
    learning_rate: float,
    epsilon: float,
    beta1: float,
    beta2: float,
    gathered: NDArray[np.float32] | None = None,
    max_norm: float = 0.0,
) -> None:
    """Takes step `step`, counted from 1, of lazy Adam; W = 3 D."""
