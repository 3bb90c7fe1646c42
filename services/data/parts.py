"""A part of a data set: some samples in a row, such as all but the last tenth, or that tenth."""

from __future__ import annotations

from collections.abc import Iterator

from services.data.dataset import Dataset
from services.data.derived import DerivedDataset
from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument


class Part(DerivedDataset):
    """A `Dataset` of the samples `first` to `last - 1` of another one.

    What comes before them is read, too, and dropped.
    """

    def __init__(self, dataset: Dataset, first: int, last: int) -> None:
        super().__init__(dataset)
        self._first = first
        self._last = last
        self.samples = last - first
        self.endless = False

    @property
    def fingerprint(self) -> str:
        """Names the data set and the part."""
        return f"{self._source.fingerprint}; samples {self._first} to {self._last - 1}"

    def __iter__(self) -> Iterator[SampleBatch]:
        """Reads the part, in batches of at most the data set's."""
        position = 0
        for batch in self._source:
            part = batch[max(0, self._first - position) : self._last - position]
            if len(part):
                yield part
            position += len(batch)
            if position >= self._last:
                return


def hold_out(dataset: Dataset, share: float) -> tuple[Part, Part]:
    """Returns what is left of a data set to train, and the last `share` of its samples, 0..1, to judge the model by.

    Raises:
        InvalidArgument: the number of samples is not known before they are read, or one of the parts is empty.
    """
    if dataset.samples is None:
        raise InvalidArgument(
            f"--holdout needs to know how many samples there are, and {dataset.name} is read to its end to know: give "
            "--evaluate another file, or a pattern of files"
        )
    trained = dataset.samples - round(share * dataset.samples)
    if not 0 < trained < dataset.samples:
        raise InvalidArgument(f"--holdout {share} of {dataset.samples} samples leaves none for one of the two parts")
    return Part(dataset, 0, trained), Part(dataset, trained, dataset.samples)
