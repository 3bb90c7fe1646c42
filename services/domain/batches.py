"""Training samples, as columns, and the pieces of a sample stream that are logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.columns import Order, SampleColumns, arrangement
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import MAX_SAMPLE_IDS, Feature, Pooling
from esd.services.domain.ids import in_table, table_of
from esd.services.domain.sources import SourcePosition

T = TypeVar("T", bound=np.generic)

# The arrays of a batch: type and number of dimensions.
_ARRAYS: dict[str, tuple[type[np.generic], int]] = {
    "ids": (np.uint64, 1),
    "labels": (np.float32, 2),
    "dense": (np.float32, 2),
    "lengths": (np.uint32, 2),
    "weights": (np.float32, 1),
    "groups": (np.uint64, 1),
    "sites": (np.uint64, 1),
    "references": (np.uint64, 1),
}
_OPTIONAL = ("lengths", "weights", "groups", "sites", "references")


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """k samples of F features, which have N ids together, d dense features and L labels.

    Attributes:
        ids: uint64 [N], the embedding row ids: sample by sample, and in each sample feature by feature.
        dense: float32 [k, d].
        labels: float32 [k, L].
        lengths: uint32 [k, F], number of ids of each feature in each sample; None: exactly one of each, so N = k F.
        weights: float32 [k], factor of each sample's loss; None: 1.
        groups: uint64 [k], group of each sample, such as its user; None: samples have no groups.
        sites: uint64 [k], the site of each sample, as `site_key` makes it of a name; None: samples have no sites.
        references: uint64 [k], to dense features and labels that stay at the samples' sites
            (esd.services.domain.references); d and L are 0 then. None: they are here.
        columns: the names of features, dense features and labels, by which a job or a model takes the samples; None:
            they are unknown, and the samples must stand in the job's order.
        source: the place of the first sample in its source, by which the stream goes on after a crash; None: unknown.

    Example:
        Two samples of two features with one id each, one dense feature and one label:

        >>> batch = esd.SampleBatch.of_fields(
        ...     np.array([[11, 21], [12, 21]], np.uint64), np.zeros((2, 1), np.float32), np.array([1, 0], np.float32)
        ... )
        >>> len(batch), batch.fields
        (2, 2)
        >>> batch[:1].ids.tolist()
        [11, 21]

        The same with a list as second feature, of two ids in the first sample and none in the second:

        >>> lists = esd.SampleBatch(
        ...     np.array([11, 21, 22, 12], np.uint64), batch.dense, batch.labels, np.array([[1, 2], [1, 0]], np.uint32)
        ... )
        >>> lists.ids_of_feature(1).tolist()
        [21, 22]
    """

    ids: NDArray[np.uint64]
    dense: NDArray[np.float32]
    labels: NDArray[np.float32]
    lengths: NDArray[np.uint32] | None = None
    weights: NDArray[np.float32] | None = None
    groups: NDArray[np.uint64] | None = None
    sites: NDArray[np.uint64] | None = None
    references: NDArray[np.uint64] | None = None
    columns: SampleColumns | None = None
    source: SourcePosition | None = None

    @classmethod
    def of_fields(cls, ids: NDArray[np.uint64], dense: NDArray[np.float32], labels: NDArray[np.float32]) -> Self:
        """Makes samples with exactly one id of each feature: ids [k, F], dense [k, d], labels [k] or [k, L]."""
        return cls(ids.reshape(-1), dense, labels.reshape(len(labels), -1) if len(labels) else labels.reshape(0, 1))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Self:
        lengths = None if self.lengths is None else self.lengths[rows]
        weights = None if self.weights is None else self.weights[rows]
        groups = None if self.groups is None else self.groups[rows]
        sites = None if self.sites is None else self.sites[rows]
        references = None if self.references is None else self.references[rows]
        return type(self)(
            self._ids_of(rows),
            self.dense[rows],
            self.labels[rows],
            lengths,
            weights,
            groups,
            sites,
            references,
            self.columns,
            self._source_of(rows),
        )

    def _source_of(self, rows: slice | NDArray[np.integer]) -> SourcePosition | None:
        """Returns the place of the first of some samples; None unless they follow each other."""
        if self.source is None or not isinstance(rows, slice) or rows.step not in (None, 1):
            return None
        return self.source.after(rows.indices(len(self))[0])

    def _ids_of(self, rows: slice | NDArray[np.integer]) -> NDArray[np.uint64]:
        if self.lengths is None:
            return self.by_field[rows].reshape(-1)
        begins = self.begins
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(len(self))
            return self.ids[int(begins[start]) : int(begins[max(start, stop)])]
        chosen = np.arange(len(self))[rows]
        counts = np.diff(begins)[chosen]
        # The positions of a sample's ids rise by one from its beginning here.
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        picked: NDArray[np.uint64] = self.ids[np.repeat(begins[chosen], counts) + steps]
        return picked

    @property
    def fields(self) -> int:
        """F; 0 if it is unknown because there are no samples."""
        if self.lengths is not None:
            return int(self.lengths.shape[1])
        return len(self.ids) // max(1, len(self))

    @property
    def by_field(self) -> NDArray[np.uint64]:
        """The ids of samples with exactly one id of each feature, uint64 [k, F]. Must not be used for other samples."""
        return self.ids.reshape(len(self), self.fields)

    @property
    def begins(self) -> NDArray[np.int64]:
        """The position in `ids` at which each sample begins, int64 [k + 1]; the last one is N."""
        if self.lengths is None:
            return np.arange(len(self) + 1, dtype=np.int64) * self.fields
        begins = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self.lengths.sum(axis=1, dtype=np.int64), out=begins[1:])
        return begins

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The bytes of each sample, int64 [k]: of its ids, and of its part of every other array."""
        return np.diff(self.begins) * self.ids.itemsize + (self.nbytes - self.ids.nbytes) // max(1, len(self))

    @property
    def nbytes(self) -> int:
        """The bytes of all samples."""
        columns = (getattr(self, name) for name in _ARRAYS)
        return sum(each.nbytes for each in columns if each is not None)

    @property
    def id_columns(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32] | None]:
        """The ids in the form of the engine: [k, F] and None, or [N] and their lengths; C-contiguous."""
        if self.lengths is None:
            return np.ascontiguousarray(self.by_field), None
        return np.ascontiguousarray(self.ids), np.ascontiguousarray(self.lengths)

    @property
    def first_ids(self) -> NDArray[np.uint64]:
        """The first id of each feature of each sample, uint64 [k, F]; 0 if the sample has none."""
        if self.lengths is None:
            return self.by_field
        lengths = self.lengths.reshape(-1)
        firsts = np.zeros(len(lengths), np.uint64)
        some = lengths > 0
        firsts[some] = self.ids[(np.cumsum(lengths, dtype=np.int64) - lengths)[some]]
        return firsts.reshape(self.lengths.shape)

    def of_ids(self, of_features: NDArray[T]) -> NDArray[T]:
        """Returns for each id the value of its feature, [N]; `of_features` has one value per feature, [F]."""
        of_lists = np.tile(of_features, len(self))
        return of_lists if self.lengths is None else np.repeat(of_lists, self.lengths.reshape(-1))

    def ids_of_feature(self, feature: int) -> NDArray[np.uint64]:
        """Returns all ids of one feature, given by its number, in the order of the samples: uint64 [n]."""
        if self.lengths is None:
            return self.by_field[:, feature]
        of_feature = np.zeros(self.lengths.shape, np.bool_)
        of_feature[:, feature] = True
        return self.ids[np.repeat(of_feature.reshape(-1), self.lengths.reshape(-1))]

    @classmethod
    def concatenate(cls, batches: Sequence[Self]) -> Self:
        """Joins batches of the same features, dense features and labels, in order.

        If only some of the batches have weights, the weights of the others are 1; likewise missing groups are 0.
        The columns keep their names if all batches agree.

        Raises:
            InvalidArgument: only some of the batches have sites, or references.
        """
        lengths = weights = groups = None
        sites, references = cls._of_all("sites", batches), cls._of_all("references", batches)
        if any(batch.lengths is not None for batch in batches):
            ones = [np.ones((len(batch), batch.fields), np.uint32) for batch in batches]
            found = [one if batch.lengths is None else batch.lengths for batch, one in zip(batches, ones, strict=True)]
            lengths = np.concatenate([each for each in found if len(each)] or found[:1])
        if any(batch.weights is not None for batch in batches):
            weights = np.concatenate(
                [np.ones(len(batch), np.float32) if batch.weights is None else batch.weights for batch in batches]
            )
        if any(batch.groups is not None for batch in batches):
            groups = np.concatenate(
                [np.zeros(len(batch), np.uint64) if batch.groups is None else batch.groups for batch in batches]
            )
        return cls(
            np.concatenate([batch.ids for batch in batches]),
            np.concatenate([batch.dense for batch in batches]),
            np.concatenate([batch.labels for batch in batches]),
            lengths,
            weights,
            groups,
            sites,
            references,
            batches[0].columns if all(batch.columns == batches[0].columns for batch in batches) else None,
        )

    @staticmethod
    def _of_all(column: str, batches: Sequence[SampleBatch]) -> NDArray[np.uint64] | None:
        """Joins a column for which nothing can stand in, such as the sites, where batches have it."""
        found = [each for batch in batches if (each := getattr(batch, column)) is not None]
        if found and len(found) < len(batches):
            raise InvalidArgument(
                f"{len(found)} of {len(batches)} batches have {column}: either all of them do, or none"
            )
        return np.concatenate(found) if found else None

    def named(self, columns: SampleColumns) -> Self:
        """Returns the same samples with the names of their columns."""
        return replace(self, columns=columns)

    def arranged(self, wanted: SampleColumns, *, labelled: bool = True) -> Self:
        """Returns the same samples with the columns of a job or a model, in its order.

        Samples without names stay as they are.

        Args:
            wanted: the columns of the job or model.
            labelled: whether labels are matched, too.

        Raises:
            InvalidArgument: the columns cannot be matched by name (`arrangement`).
        """
        if self.columns is None or self.columns == wanted:
            return self
        moves = arrangement(self.columns, wanted, labelled=labelled)
        if not moves.changes:
            return self
        ids, lengths = self.ids, self.lengths
        if moves.features is not None:
            ids, lengths = self._with_features(moves.features)
        moved = replace(
            self,
            ids=ids,
            lengths=lengths,
            columns=wanted,
        )
        if self.references is None:  # else their worker arranges dense features and labels
            moved = replace(
                moved,
                dense=self.dense if moves.dense is None else np.ascontiguousarray(self.dense[:, moves.dense]),
                labels=self.labels if moves.labels is None else np.ascontiguousarray(self.labels[:, moves.labels]),
            )
        if moves.tables is None:
            return moved
        return replace(moved, ids=in_table(moved.ids, moved.of_ids(moves.tables.astype(np.uint64))))

    def _with_features(self, order: Order) -> tuple[NDArray[np.uint64], NDArray[np.uint32] | None]:
        """Returns ids and lengths with the features in another order, int [F]."""
        if self.lengths is None:
            return self.by_field[:, order].reshape(-1), None
        lengths = self.lengths[:, order]
        of_features = self.lengths.astype(np.int64)
        begins = (np.cumsum(of_features.reshape(-1)) - of_features.reshape(-1)).reshape(of_features.shape)[:, order]
        counts = lengths.reshape(-1).astype(np.int64)
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.ids[np.repeat(begins.reshape(-1), counts) + steps], np.ascontiguousarray(lengths)

    def check_arrays(self) -> None:
        """Raises InvalidArgument unless all arrays have the types and dimensions above; users may build batches."""
        for name, (dtype, dimensions) in _ARRAYS.items():
            array: Any = getattr(self, name)
            if array is None and name in _OPTIONAL:
                continue
            if not isinstance(array, np.ndarray):
                raise InvalidArgument(f"{name} of a SampleBatch is a {type(array).__name__}, it must be an array")
            if array.dtype != dtype or array.ndim != dimensions:
                raise InvalidArgument(
                    f"{name} of a SampleBatch is {array.dtype} of {array.ndim} dimensions, it must be "
                    f"{np.dtype(dtype)} of {dimensions}"
                )
            if name != "ids" and len(array) != len(self):
                raise InvalidArgument(f"{name} of a SampleBatch is of {len(array)} samples, labels of {len(self)}")
        if self.references is not None and self.dense.shape[1] + self.labels.shape[1]:
            raise InvalidArgument(
                f"a SampleBatch with references has {self.dense.shape[1]} dense features and {self.labels.shape[1]} "
                "labels: these stay at their sites, so it must have none"
            )
        if self.lengths is None and (len(self.ids) % len(self) if len(self) else len(self.ids)):
            raise InvalidArgument(
                f"a SampleBatch has {len(self.ids)} ids of {len(self)} samples and no lengths, which would give the "
                "number of ids of each"
            )

    def check_numbers(self) -> None:
        """Raises InvalidArgument unless all numbers are finite, no weight is negative, and the lengths sum to N."""
        for name, values in (("dense", self.dense), ("label", self.labels), ("weight", self.weights)):
            if values is not None and not np.isfinite(values).all():
                row = int(np.argwhere(~np.isfinite(values))[0][0])
                raise InvalidArgument(f"{name} of sample {row} is not finite")
        if self.weights is not None and (self.weights < 0).any():
            row = int(np.argmax(self.weights < 0))
            raise InvalidArgument(f"weight of sample {row} is {self.weights[row]}, it must not be negative")
        if self.lengths is not None and int(self.lengths.sum(dtype=np.int64)) != len(self.ids):
            total = int(self.lengths.sum(dtype=np.int64))
            raise InvalidArgument(f"lengths sum to {total}, there are {len(self.ids)} ids")

    def check_shape(self, features: Sequence[Feature], dense_features: int, labels: int) -> None:
        """Raises InvalidArgument unless the batch has these features, and this number of dense features and labels."""
        for what, found, expected in (
            ("features", self.fields, len(features)),
            ("dense features", self.dense.shape[1], dense_features),
            ("labels", self.labels.shape[1], labels),
        ):
            if found != expected:
                raise InvalidArgument(f"the batch has {found} {what} per sample, the job has {expected}")
        if any(feature.table for feature in features):
            self._check_tables(features)
        if self.lengths is None:
            return
        least = np.array([feature.pooling is Pooling.ONE for feature in features], np.uint32)
        most = np.array([feature.max_length for feature in features], np.uint32)
        wrong = (self.lengths < least) | (self.lengths > most)
        if wrong.any():
            sample, at = (int(each) for each in np.argwhere(wrong)[0])
            feature = features[at]
            allowed = "exactly one" if feature.pooling is Pooling.ONE else f"at most {feature.max_length}"
            raise InvalidArgument(
                f"sample {sample} has {self.lengths[sample, at]} ids of feature {feature.name!r}, it may have {allowed}"
            )
        together = np.diff(self.begins)
        if (together > MAX_SAMPLE_IDS).any():
            sample = int(np.argmax(together))
            raise InvalidArgument(
                f"sample {sample} has {together[sample]} ids of all features together, it may have {MAX_SAMPLE_IDS}"
            )

    def _check_tables(self, features: Sequence[Feature]) -> None:
        expected = self.of_ids(np.array([feature.table for feature in features], np.int64))
        wrong = table_of(self.ids) != expected
        if wrong.any():
            at = int(np.argmax(wrong))
            feature = features[int(self.of_ids(np.arange(len(features)))[at])]
            sample = int(np.searchsorted(self.begins, at, side="right")) - 1
            raise InvalidArgument(
                f"id {int(self.ids[at])} of feature {feature.name!r} of sample {sample} is of table "
                f"{int(table_of(self.ids[at]))} by its top 8 bits, the feature is of table {feature.table}"
            )


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the log of a job's sample stream, which the first parameter server stores for the dispatcher.

    Attributes:
        position: number of samples of the stream before it.
        samples: k; 0 marks the end of the stream.
        batch: the k samples as an encoded SampleBatch message, which the parameter server does not decode.
    """

    position: int
    samples: int
    batch: bytes = b""

    @property
    def end(self) -> int:
        """Number of samples of the stream before the next entry."""
        return self.position + self.samples

    @property
    def closes(self) -> bool:
        """Whether it is the last entry of its stream."""
        return self.samples == 0
