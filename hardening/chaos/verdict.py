"""Whether a run ended as an undisturbed one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from esd.run.options import RunOptions
from esd.run.results import Result, training_result
from esd.services.domain.state import JobState
from esd.services.domain.tables import OptimizerKind
from hardening.chaos.system import run

# Of a run with fewer workers, whose sums have another order. The model may be farther off than its figures: Adam
# enlarges the rounding where a ReLU is on its edge (docs/recovery.md).
TOLERANCE = 1e-4
MODEL_TOLERANCE = {OptimizerKind.SGD: 1e-5, OptimizerKind.ROWWISE_ADAGRAD: 1e-4, OptimizerKind.ADAM: 1e-2}
_EXACT = ("iterations", "samples", "loss", "auc", "operations", "cost_seconds")
_CLOSE = ("iterations", "samples", "loss", "auc")


@dataclass
class Undisturbed:
    """The undisturbed runs, one for each requested optimizer, made when first needed."""

    folder: Path
    _results: dict[OptimizerKind, Result] = field(default_factory=dict)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def like(self, options: RunOptions) -> tuple[Result, Path]:
        """Returns the result of the undisturbed run of these options, and the folder of its model."""
        place = self.folder / f"undisturbed-{options.optimizer.value}"
        async with self._one_at_a_time:
            if options.optimizer not in self._results:
                place.mkdir()
                final = await run(options, place / "kept", place, lambda _system, _state: None)
                self._results[options.optimizer] = training_result(final)
        return self._results[options.optimizer], place

    async def judge(self, options: RunOptions, final: JobState, place: Path, *, alone: bool) -> tuple[bool, str]:
        """Compares the model of a finished run with the undisturbed one, and describes the difference in words.

        Args:
            options: options of the training.
            final: the run's last state.
            place: the folder of its model.
            alone: whether some iterations were trained with a worker missing, so that sums have another order.
        """
        expected, folder = await self.like(options)
        result = training_result(final)
        distance = difference(place, folder)
        if alone:
            differing = [figure for figure in _CLOSE if not np.isclose(result[figure], expected[figure], TOLERANCE, 0)]
            near = distance <= MODEL_TOLERANCE[options.optimizer]
        else:
            differing = [figure for figure in _EXACT if result[figure] != expected[figure]]
            near = distance == 0
        verdict = "bit-identical" if distance == 0 else f"off by {distance:.1e}"
        verdict += "".join(f", {figure} differs" for figure in differing)
        return near and not differing, verdict


def difference(place: Path, undisturbed: Path) -> float:
    """Largest relative distance of an array of the model; 0 is bit by bit.

    Infinite if something else than trained numbers differs: the arrays that there are, rows, versions, the description.
    """
    with np.load(place / "model.npz") as model, np.load(undisturbed / "model.npz") as expected:
        trained = [name for name in expected.files if np.issubdtype(expected[name].dtype, np.floating)]
        exact = set(expected.files) - set(trained)
        if set(model.files) != set(expected.files) or any(
            not np.array_equal(model[name], expected[name]) for name in exact
        ):
            return float("inf")
        return max(
            float(np.linalg.norm(model[name] - expected[name])) / (float(np.linalg.norm(expected[name])) or 1.0)
            for name in trained
        )
