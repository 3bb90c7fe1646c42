"""Data with sites of samples, among the sites of a job's workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from esd.data.dataset import Dataset


@runtime_checkable
class Sited(Protocol):
    """A data set that knows where its samples arise."""

    def at_sites(self, sites: Sequence[str]) -> Dataset:
        """Returns the same samples with their sites, all of them in `sites`, the sites of the workers.

        Raises:
            InvalidArgument: the data name no sites.
        """
        ...


def at_sites(dataset: Dataset, sites: Sequence[str]) -> Dataset:
    """Returns the samples of a data set with their sites. A data set of one's own yields them with sites already."""
    return dataset.at_sites(sites) if isinstance(dataset, Sited) else dataset
