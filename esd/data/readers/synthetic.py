"""Synthetic click streams: `synthetic:criteo`, `synthetic:avazu`, `synthetic:zipf`.

Sample i is a pure function of (seed, options, i): every random number is a hash of 64 bits that belong to the sample,
so any sample can be made on its own, nothing is stored, and streams may be endless.

- Every field draws ranks from a Zipf-like law over its cardinality: P(rank r) is about r^-skew.
- Every sample belongs to a latent cluster, itself drawn by Zipf. With probability `affinity` a field takes the
  value of that rank in the cluster's own order of values, else in the order that all share. So ids that are
  popular in one cluster meet in the same samples, as the users and ads of one site do.
- Labels follow a hidden logistic model: a weight for every id, one for the cluster, one for every dense feature.

Options, after `?` and separated by `&`: samples=N (default: endless), skew, affinity; zipf also takes fields and
keys (the cardinality of all fields together).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from esd.data.dataset import columns_of
from esd.data.hashing import READER_VERSION, derived_ids, field_key, hash_bytes
from esd.data.readers.synthetic_options import SyntheticOptions
from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import single_ids
from esd.services.domain.ids import mix64

_BLOCK = 4096  # samples generated at a time
_CLUSTERS = 64
_CLUSTER_SKEW = 0.8
# Standard deviations of the parts of the hidden model's logit.
_CLUSTER_EFFECT = 0.8
_IDS_EFFECT = 1.0
_DENSE_EFFECT = 0.5


@dataclass(frozen=True, slots=True)
class _Features:
    """k samples without their labels.

    Attributes:
        sources: uint64 [k], the random bits that each sample is made from.
        clusters: uint64 [k], the same for its latent cluster.
        ids: uint64 [k, F].
        dense: float64 [k, d].
    """

    sources: NDArray[np.uint64]
    clusters: NDArray[np.uint64]
    ids: NDArray[np.uint64]
    dense: NDArray[np.float64]


class SyntheticDataset:
    """A `Dataset` of samples that are made as they are asked for."""

    skipped = 0

    def __init__(self, options: SyntheticOptions, batch_size: int, seed: int) -> None:
        self._options = options
        self._batch_size = batch_size
        self._key = np.uint64(hash_bytes(seed % 2**64, b"synthetic"))
        self._field_keys = np.array([field_key(name) for name in options.fields], np.uint64)
        self.name = f"synthetic:{options.name}"
        self.features = single_ids(options.fields)
        self.labels = ("label",)
        self.dense_features = tuple(f"dense {i}" for i in range(1, options.dense_features + 1))
        self.samples = options.samples
        self.endless = options.samples is None
        described = hashlib.sha256(str(options).encode()).hexdigest()[:16]
        self.fingerprint = f"{self.name} (options {described}, seed {seed}, reader {READER_VERSION})"

    @classmethod
    def open(cls, text: str, batch_size: int, seed: int) -> SyntheticDataset:
        """Opens `criteo`, `zipf?skew=0.9&samples=1000`, ...; InvalidArgument names a wrong part."""
        return cls(SyntheticOptions.parse(text), batch_size, seed)

    def __iter__(self) -> Iterator[SampleBatch]:
        columns = columns_of(self)
        step = max(_BLOCK // self._batch_size, 1) * self._batch_size
        for start in itertools.count(0, step):
            stop = start + step if self.samples is None else min(start + step, self.samples)
            if stop <= start:
                return
            block = self._generate(np.arange(start, stop, dtype=np.uint64)).named(columns)
            for first in range(0, len(block), self._batch_size):
                yield block[first : first + self._batch_size]

    def _generate(self, samples: NDArray[np.uint64]) -> SampleBatch:
        """Returns the samples at these positions of the stream, uint64 [k]."""
        features = self._features(samples)
        chances = _logistic(self._logits(features) + self._bias)
        labels = uniform(draw(features.sources, "label")) < chances
        return SampleBatch.of_fields(features.ids, features.dense.astype(np.float32), labels.astype(np.float32))

    def _features(self, samples: NDArray[np.uint64]) -> _Features:
        sources = mix64(self._key ^ mix64(samples + np.uint64(1)))
        cluster = zipf_ranks(uniform(draw(sources, "cluster")), _CLUSTERS, _CLUSTER_SKEW)
        clusters = draw(self._key ^ mix64(cluster.astype(np.uint64) + np.uint64(1)), "cluster")
        return _Features(sources, clusters, self._ids(sources, clusters), self._dense(sources, clusters))

    def _ids(self, sources: NDArray[np.uint64], clusters: NDArray[np.uint64]) -> NDArray[np.uint64]:
        cardinalities = np.array(self._options.cardinalities)
        bits = mix64(sources[:, None] ^ self._field_keys)
        ranks = zipf_ranks(uniform(bits), cardinalities, self._options.skew)
        follows = (bits & np.uint64(0x7FF)).astype(np.float64) < self._options.affinity * 2048  # bits uniform() drops
        # A cluster's own order of the values starts elsewhere in the circle of values.
        starts = (mix64(clusters[:, None] ^ self._field_keys) % cardinalities.astype(np.uint64)).astype(np.int64)
        values = (ranks + np.where(follows, starts, 0)) % cardinalities
        return np.column_stack(
            [derived_ids(name, column) for name, column in zip(self._options.fields, values.T, strict=True)]
        )

    def _dense(self, sources: NDArray[np.uint64], clusters: NDArray[np.uint64]) -> NDArray[np.float64]:
        """float64 [k, d], about standard normal: half of the variance is noise, half is the cluster's."""
        width = len(self.dense_features)
        dense: NDArray[np.float64] = (
            normal(draw(sources, "dense", width)) + normal(draw(clusters, "dense", width))
        ) * np.sqrt(0.5)
        return dense

    def _logits(self, features: _Features) -> NDArray[np.float64]:
        """Returns the output of the hidden model for k samples, without its bias, float64 [k]."""
        of_ids = normal(mix64(features.ids ^ self._key)).sum(axis=1) * (_IDS_EFFECT / np.sqrt(len(self.features)))
        of_cluster = normal(draw(features.clusters, "effect")) * _CLUSTER_EFFECT
        width = len(self.dense_features)
        weights = normal(draw(np.array([self._key]), "dense weights", width))[0]
        of_dense = features.dense @ weights * (_DENSE_EFFECT / np.sqrt(max(width, 1)))
        logits: NDArray[np.float64] = of_ids + of_cluster + of_dense
        return logits

    @cached_property
    def _bias(self) -> float:
        """The bias at which label 1 has the wanted share among the first samples; found by bisection."""
        logits = self._logits(self._features(np.arange(_BLOCK, dtype=np.uint64)))
        low, high = -30.0, 30.0
        for _ in range(40):
            middle = (low + high) / 2
            if _logistic(logits + middle).mean() < self._options.positive_rate:
                low = middle
            else:
                high = middle
        return low


def _logistic(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    chances: NDArray[np.float64] = 1 / (1 + np.exp(-logits))
    return chances


def draw(sources: NDArray[np.uint64], purpose: str, width: int | None = None) -> NDArray[np.uint64]:
    """64 random bits for a purpose, of each of k sources: uint64 [k], or uint64 [k, width] where a width is given."""
    bits = mix64(sources ^ np.uint64(field_key(f"synthetic {purpose}")))
    if width is None:
        return bits
    return mix64(bits[:, None] ^ np.arange(1, width + 1, dtype=np.uint64))


def uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Returns numbers that are uniform in [0, 1), made of the upper 53 bits."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Returns about normal numbers of mean 0 and variance 1: each is the sum of four uniform 16-bit numbers."""
    total = np.zeros(bits.shape, np.uint64)
    for shift in (0, 16, 32, 48):
        total += (bits >> np.uint64(shift)) & np.uint64(0xFFFF)
    normal_sum: NDArray[np.float64] = (total.astype(np.float64) / 65536 - 2) * 3**0.5
    return normal_sum


def zipf_ranks(
    uniform_draws: NDArray[np.float64], cardinality: NDArray[np.int64] | int, skew: float
) -> NDArray[np.int64]:
    """Ranks from 0, with P(rank r) about (r + 1)^-skew.

    They are the uniform draws under the inverse of the continuous law on [1, cardinality + 1).
    """
    ends = np.asarray(cardinality) + 1.0
    if skew == 1:
        values = ends**uniform_draws
    else:
        rest = 1 - skew
        values = (1 + uniform_draws * (ends**rest - 1)) ** (1 / rest)
    return np.minimum(values.astype(np.int64), cardinality) - 1
