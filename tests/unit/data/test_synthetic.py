import itertools

import numpy as np
import pytest

from esd.data import open_data
from esd.data.readers.synthetic import normal, uniform, zipf_ranks
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.ids import mix64


def take(uri, batches, batch_size=500, seed=0):
    return SampleBatch.concatenate(list(itertools.islice(open_data(uri, batch_size, seed=seed), batches)))


@pytest.mark.parametrize(
    ("name", "fields", "dense", "rate"), [("criteo", 26, 13, 0.26), ("avazu", 22, 0, 0.17), ("zipf", 26, 0, 0.25)]
)
def test_shape_and_label_rate(name, fields, dense, rate):
    dataset = open_data(f"synthetic:{name}?samples=40000", 4096, seed=3)
    samples = SampleBatch.concatenate(list(dataset))
    samples.check_numbers()
    samples.check_shape(dataset.features, len(dataset.dense_features), len(dataset.labels))
    assert (len(samples), len(dataset.features), len(dataset.dense_features)) == (40_000, fields, dense)
    assert dataset.samples == 40_000
    assert not dataset.endless
    assert samples.labels.mean() == pytest.approx(rate, abs=0.02)


def test_same_seed_same_stream_whatever_the_batch_size():
    one, other = take("synthetic:criteo", 84, batch_size=100), take("synthetic:criteo", 12, batch_size=700)
    assert one.by_field.tobytes() == other.by_field.tobytes()
    assert one.dense.tobytes() == other.dense.tobytes()
    assert one.labels.tobytes() == other.labels.tobytes()


def test_an_endless_stream_starts_again():
    dataset = open_data("synthetic:avazu", 64, seed=1)
    assert dataset.endless
    assert dataset.samples is None
    assert next(iter(dataset)).by_field.tolist() == next(iter(dataset)).by_field.tolist()


def test_other_seed_other_samples():
    one, other = take("synthetic:criteo", 2, seed=1), take("synthetic:criteo", 2, seed=2)
    assert (one.by_field != other.by_field).mean() > 0.3
    assert (one.labels != other.labels).any()


def test_values_stay_within_the_cardinality():
    samples = take("synthetic:criteo", 20)
    assert len(np.unique(samples.by_field[:, 8])) == 3  # C9
    assert len(np.unique(samples.by_field[:, 19])) == 4  # C20


def test_skew_makes_few_ids_common():
    def share_of_top_ids(skew):
        ids = take(f"synthetic:zipf?fields=1&keys=10000&affinity=0&skew={skew}", 40).ids
        return np.sort(np.unique(ids, return_counts=True)[1])[-100:].sum() / ids.size

    assert share_of_top_ids(0) < 0.05
    assert 0.3 < share_of_top_ids(0.9) < share_of_top_ids(1)
    assert share_of_top_ids(1.5) > 0.85


def test_ranks_follow_the_zipf_law():
    ranks = zipf_ranks((np.arange(100_000) + 0.5) / 100_000, 1000, 0.9)
    counts = np.bincount(ranks, minlength=1000)
    assert len(counts) == 1000
    np.testing.assert_allclose(counts[100] / counts[10], (101 / 11) ** -0.9, rtol=0.1)


def test_affinity_makes_fields_agree():
    """One field of a sample tells about another one when both follow the latent cluster: fewer pairs are seen."""

    def distinct_pairs(affinity):
        ids = take(f"synthetic:zipf?fields=2&keys=20000&skew=1.2&affinity={affinity}", 40).by_field
        shuffled = np.column_stack([ids[:, 0], np.random.default_rng(0).permutation(ids[:, 1])])
        return len(np.unique(ids, axis=0)) / len(np.unique(shuffled, axis=0))

    assert distinct_pairs(0) == pytest.approx(1, abs=0.02)
    assert distinct_pairs(1) < 0.9


def test_criteo_has_as_many_ids_as_the_real_data():
    """80,000 real Criteo records hold 200,251 distinct ids."""
    assert len(np.unique(take("synthetic:criteo", 160).ids)) == pytest.approx(200_251, rel=0.02)


def test_labels_can_be_learned():
    """A ridge regression on the dense features and the frequent ids beats chance on later samples."""
    samples = take("synthetic:criteo", 40)
    _, positions, counts = np.unique(samples.by_field, return_inverse=True, return_counts=True)
    columns = np.where(counts >= 200, np.cumsum(counts >= 200), 0)  # column 0: all rare ids
    x = np.zeros((len(samples), columns.max() + 1))
    np.put_along_axis(x, columns[positions.reshape(samples.by_field.shape)], 1, axis=1)
    x = np.concatenate([x, samples.dense], axis=1)
    train, test = slice(0, 15_000), slice(15_000, None)
    gram = x[train].T @ x[train] + 50 * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, x[train].T @ samples.labels[train, 0])
    assert area_under_curve(x[test] @ weights, samples.labels[test, 0]) > 0.65


def area_under_curve(scores, labels):
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores)] = np.arange(len(scores))
    positive = labels == 1
    return (ranks[positive].mean() - (positive.sum() - 1) / 2) / (~positive).sum()


def test_draws_have_their_moments():
    bits = mix64(np.arange(1, 200_001, dtype=np.uint64))
    assert uniform(bits).mean() == pytest.approx(0.5, abs=0.005)
    assert normal(bits).mean() == pytest.approx(0, abs=0.01)
    assert normal(bits).std() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("synthetic:", "synthetic data '' is unknown; there are criteo, avazu and zipf"),
        ("synthetic:mnist", "synthetic data 'mnist' is unknown"),
        ("synthetic:criteo?keys=5", "option 'keys' is unknown; there are samples, skew, affinity"),
        ("synthetic:zipf?keys=5", r"keys=5 in the data's options must be a number in 26\.\."),
        ("synthetic:zipf?samples=0", r"samples=0 in the data's options must be a number in 1\.\."),
        ("synthetic:zipf?samples=1.5", r"samples=1\.5 in the data's options must be a whole number"),
        ("synthetic:zipf?skew=", r"skew= in the data's options must be a number in 0\.\.10"),
        ("synthetic:zipf?affinity=nan", r"affinity=nan in the data's options must be a number in 0\.\.1"),
    ],
)
def test_wrong_options_are_refused(uri, message):
    with pytest.raises(InvalidArgument, match=message):
        open_data(uri, 10, seed=0)
