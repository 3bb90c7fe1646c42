"""Whether a run ended as an undisturbed one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from esd.run.results import Result
from esd.run.train import TrainedRun
from esd.services.domain.sync import Proactive
from esd.services.domain.tables import OptimizerKind
from hardening.chaos.system import Training, run
from tests.support.models import model_arrays

# Of a run with fewer workers, whose sums have another order. The model may be farther off than its figures: Adam
# enlarges the rounding where a ReLU is on its edge (docs/recovery.md).
TOLERANCE = 1e-4
MODEL_TOLERANCE = {OptimizerKind.SGD: 1e-5, OptimizerKind.ROWWISE_ADAGRAD: 1e-4, OptimizerKind.ADAM: 1e-2}
_CLOSE = ("iterations", "samples", "loss", "auc")
_COUNTED = ("operations", "cost_seconds")  # equal where decisions depend on no measurement
_FIGURES = ("loss", "auc")  # of an evaluation
_OVERTAKEN = "the pull wants the older version"  # in a cause: some push came too early, which no misfortune can do


@dataclass
class Undisturbed:
    """The undisturbed runs, one for each training that is asked for, made when it is first needed."""

    folder: Path
    _trained: dict[Training, tuple[TrainedRun, Path]] = field(default_factory=dict)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def like(self, training: Training) -> tuple[TrainedRun, Path]:
        """Returns the undisturbed run of a training, and the folder of its model."""
        async with self._one_at_a_time:
            if training not in self._trained:
                place = self.folder / f"undisturbed-{len(list(self.folder.iterdir()))}"
                place.mkdir()
                store = place / "kept"
                await train_earlier(training, store, place)
                self._trained[training] = await run(training, store, place, lambda _system, _state: None), place
        return self._trained[training]

    async def judge(
        self, training: Training, trained: TrainedRun, place: Path, *, alone: bool, missed: Collection[int] = ()
    ) -> tuple[bool, str]:
        """Compares the model of a finished run with the undisturbed one, and describes the difference in words.

        A run with the right model is bad too if it recovered where nothing had happened to it.

        Args:
            training: the training.
            trained: the run.
            place: the folder of its model.
            alone: whether some iterations were trained with a worker missing, so that sums have another order.
            missed: the iterations at which the run has reported that it makes no evaluation.
        """
        undisturbed, folder = await self.like(training)
        result, expected = trained.result(), undisturbed.result()
        distance = difference(place, folder)
        exact: tuple[str, ...] = ()
        if alone:
            near = distance <= MODEL_TOLERANCE[training.options.optimizer]
            tolerance = TOLERANCE
        else:
            near, tolerance = distance == 0, 0.0
            if not isinstance(trained.job.sync, Proactive):  # measured idle times decide what that pushes early
                exact = _COUNTED
        differing = [figure for figure in _CLOSE if not np.isclose(result[figure], expected[figure], tolerance, 0)]
        differing += [figure for figure in exact if result[figure] != expected[figure]]
        at = _differing_evaluations(result, expected, tolerance, missed)
        differing += [f"the evaluation at iteration {iteration}" for iteration in at]
        verdict = "bit-identical" if distance == 0 else f"off by {distance:.1e}"
        verdict += "".join(f", {figure} differs" for figure in differing)
        needless = [each.cause for each in trained.state.recoveries if _OVERTAKEN in each.cause]
        verdict += "".join(f", a recovery without need: {cause}" for cause in needless)
        return near and not differing and not needless, verdict


async def train_earlier(training: Training, store: str | Path, place: Path) -> None:
    """Trains the model that a training continues, if it continues one, in a folder of its own below `place`."""
    if training.earlier is not None:
        folder = place / "earlier"
        folder.mkdir()
        earlier = replace(training, options=training.earlier, earlier=None)
        await run(earlier, store, folder, lambda _system, _state: None)


def _differing_evaluations(result: Result, expected: Result, tolerance: float, missed: Collection[int]) -> list[int]:
    """Returns the iterations whose evaluations differ, or of which only one run has an evaluation, but for missed ones.

    An evaluation is of the rows of a checkpoint, so this also finds a checkpoint to which no run goes back.
    """
    figures, others = (
        {each["iteration"]: [each[name] for name in _FIGURES] for each in run["evaluations"]}
        for run in (result, expected)
    )
    return sorted(
        at
        for at in (figures.keys() | others.keys()) - set(missed)
        if at not in figures
        or at not in others
        or not np.allclose(figures[at], others[at], tolerance, 0, equal_nan=True)
    )


def difference(place: Path, undisturbed: Path) -> float:
    """Largest relative distance of an array of the model; 0 is bit by bit.

    Infinite if something else than trained numbers differs: the arrays that there are, rows, versions, the description.
    """
    model, expected = model_arrays(place / "model"), model_arrays(undisturbed / "model")
    trained = [name for name in expected if np.issubdtype(expected[name].dtype, np.floating)]
    exact = set(expected) - set(trained)
    if set(model) != set(expected) or any(not np.array_equal(model[name], expected[name]) for name in exact):
        return float("inf")
    return max(
        float(np.linalg.norm(model[name] - expected[name])) / (float(np.linalg.norm(expected[name])) or 1.0)
        for name in trained
    )
