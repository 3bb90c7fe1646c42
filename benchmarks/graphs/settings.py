"""The graph and the way of training that both sides of the comparison share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from esd.data import open_data
from esd.data.readers.graph import GraphDataset
from esd.run.options import RunOptions
from esd.services.domain.losses import Loss
from esd.services.domain.tables import OptimizerKind

BATCH = 512  # samples of an iteration
FIGURES = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")


@dataclass(frozen=True, slots=True)
class Settings:
    """A comparison.

    Attributes:
        graph: the folder of train.txt, valid.txt and test.txt.
        dim: values of a row; half of them are imaginary.
        negatives: entities that all triples of an iteration share as negatives.
        epochs: how often the graph is trained, as far as it fills batches.
        learning_rate: of row-wise Adagrad.
    """

    graph: Path
    dim: int
    negatives: int
    epochs: int
    learning_rate: float

    @property
    def epoch_iterations(self) -> int:
        """Whole batches of an epoch. The rest is left out: a step by few triples moves rows as far as any other."""
        return len(self.dataset.triples.parts["train"]) // BATCH

    @property
    def dataset(self) -> GraphDataset:
        """The graph."""
        opened = open_data(f"graph:{self.graph}", BATCH, seed=0)
        assert isinstance(opened, GraphDataset)  # noqa: S101 - its name says so
        return opened

    def options(self, workers: int, seed: int) -> RunOptions:
        """Returns the options of ESD's side."""
        return RunOptions(
            data=f"graph:{self.graph}?negatives={self.negatives}",
            evaluate=f"graph:{self.graph}?part=test",
            model="complex",
            loss=Loss.OWN,
            workers=workers,
            batch=BATCH // workers,
            dim=self.dim,
            links="10g",
            optimizer=OptimizerKind.ROWWISE_ADAGRAD,
            learning_rate=self.learning_rate,
            epochs=self.epochs,
            iterations=self.epochs * self.epoch_iterations,
            shuffle=1_000_000,
            seed=seed,
            checkpoint_every=0,
        )
