"""The sample streams of runs and of simulations, and how a stream is cut into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from esd.data import Dataset
from esd.data.dataset import known_triples_of, negatives_of, table_options_of
from esd.data.positions import Positioned, forgets
from esd.data.schema import Schema, TableOptions
from esd.dispatcher.simulator.simulate import trace_batches
from esd.run.cache_size import DEFAULT_CACHE_RATIO
from esd.run.early_stop import RANKING, EarlyStop
from esd.run.options import RunOptions, option_name
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.features import Feature, numbered_ids
from esd.services.domain.ids import distinct_values
from esd.services.domain.negatives import Negatives
from esd.services.domain.sources import Taken

READ_SAMPLES = 1024  # that a data set is asked for at a time


@dataclass(frozen=True, slots=True)
class TrainingStream:
    """The samples of one run, in training order.

    Attributes:
        dataset: where they come from.
        limit: how many of them are trained; None for all.
        batch_size: samples per iteration.
        whole: all samples of the data, once.
        held_back: samples of the same data that are not trained but judge the model (--holdout); None without any.
        submitters: parts of the job's stream, of which this is one.
    """

    dataset: Dataset
    limit: int | None
    batch_size: int
    whole: Dataset
    held_back: Dataset | None = None
    submitters: int = 1

    @property
    def iterations(self) -> int | None:
        """The number of iterations that the stream will have, if it is known. Other parts are unknown."""
        if self.submitters > 1:
            return None
        samples = self.dataset.samples if self.limit is None else self.limit
        return None if samples is None else -(-samples // self.batch_size)

    @property
    def fingerprint(self) -> str:
        """Names the samples that the driver knows: of several parts the first."""
        named = self.dataset.fingerprint
        return named if self.submitters == 1 else f"part 0 of {self.submitters}: {named}"

    def __iter__(self) -> Iterator[SampleBatch]:
        """Reads the samples, in batches as the data set gives them."""
        return first_samples(self.dataset, self.limit)

    def behind(self, taken: Taken) -> Iterator[SampleBatch]:
        """Reads the samples behind those that a job has taken; a source with positions is opened there.

        Raises:
            FailedPrecondition: there are not even so many samples, or their source has dropped the next ones.
        """
        if taken.source is None or not isinstance(self.dataset, Positioned):
            return without_first(self, taken)
        return first_samples(self.dataset.open(taken.source), None if self.limit is None else self.limit - taken)


@dataclass(frozen=True, slots=True)
class OpenData:
    """Samples that a program has opened, in place of the data that the options of a run name.

    Attributes:
        train: the samples to train.
        evaluate: held-out samples that judge the model; None: there are none.
    """

    train: Dataset
    evaluate: Dataset | None = None


def training_stream(chosen: RunOptions, opened: OpenData | None = None) -> TrainingStream:
    """Opens the samples that a run asks for, unless they are open.

    Raises:
        InvalidArgument: the data is endless, no log, and the run names no number of iterations; or it is a log, and
            options need its beginning again; or it is a part of a stream, and options need all of it.
    """
    _check_submitters(chosen)
    _check_sites(chosen, chosen.described if opened is None else getattr(opened.train, "schema", None))
    dataset, held_back, whole = chosen.open_parts(READ_SAMPLES, None if opened is None else opened.train)
    size = sum(chosen.worker_samples())
    limit = None if chosen.iterations is None else chosen.iterations * size
    if forgets(whole) and not isinstance(dataset, Positioned):
        raise InvalidArgument(
            f"{chosen.data} is a log, which a restarted run reads from its position on: --shuffle, --holdout and "
            "--hot-batches would need its beginning again, and a log drops it"
        )
    if dataset.endless and limit is None and not forgets(whole):
        end = "give --iterations" if chosen.submitters == 1 else "a part of a stream must end (?samples=N)"
        raise InvalidArgument(f"{chosen.data} is endless: {end}")
    return TrainingStream(dataset, limit, size, whole, held_back, chosen.submitters)


def held_out_samples(chosen: RunOptions, trained: TrainingStream, opened: OpenData | None = None) -> Dataset | None:
    """Returns the samples that the model of a run on this stream is judged by; None if there are none.

    Raises:
        InvalidArgument: options contradict each other, or the samples have another shape than the trained ones.
    """
    given = None if opened is None else opened.evaluate
    if chosen.evaluate is None and not chosen.holdout and given is None:
        if chosen.evaluate_every or chosen.early_stop is not None:
            raise InvalidArgument("--evaluate-every and --early-stop need --evaluate DATA or --holdout LAST")
        return None
    if chosen.early_stop is not None and not chosen.evaluate_every:
        raise InvalidArgument("--early-stop needs --evaluate-every")
    held_out = _held_out(chosen, trained, given)
    if held_out is not None and chosen.early_stop is not None:
        metric = EarlyStop.parse(chosen.early_stop).metric
        if metric == "gauc" and all(batch.groups is None for batch in islice(held_out, 1)):
            raise InvalidArgument(
                "--early-stop gauc needs samples with groups, such as their users: name the column as `group` in the "
                "schema, or stop by auc"
            )
        if metric in RANKING and known_triples_of(held_out) is None:
            raise InvalidArgument(f"--early-stop {metric} ranks the links of a graph: use --data graph:PATH, or auc")
    return held_out


def _held_out(chosen: RunOptions, trained: TrainingStream, given: Dataset | None) -> Dataset | None:
    if chosen.evaluate is None and given is None:
        return trained.held_back
    if chosen.holdout:
        raise InvalidArgument("--evaluate and --holdout exclude each other")
    held_out = chosen.open_all(str(chosen.evaluate), READ_SAMPLES) if given is None else given
    if held_out.endless:
        raise InvalidArgument(f"--evaluate {chosen.evaluate} is endless: an evaluation would not end")
    shapes = [(each.features, each.dense_features, each.labels) for each in (trained.dataset, held_out)]
    if shapes[0] != shapes[1]:
        raise InvalidArgument(f"--evaluate {chosen.evaluate} has other columns than --data {chosen.data}")
    return held_out


@dataclass(frozen=True, slots=True)
class SimulatedStream:
    """A stream that can be read more than once.

    Attributes:
        features: the F features; the names of a trace's features are numbers, 0 to F - 1.
        dense_features: names of the d dense features.
        labels: names of the L labels.
        cache_rows: of each worker, as the options say.
        batches: reads the global batches from the start.
        negatives: of the job; None: it has none.
        table_options: options of the tables by name.
    """

    features: tuple[Feature, ...]
    dense_features: tuple[str, ...]
    labels: tuple[str, ...]
    cache_rows: int
    batches: Callable[[], Iterator[SampleBatch]]
    negatives: Negatives | None = None
    table_options: Mapping[str, TableOptions] = field(default_factory=dict)

    def profile(self) -> NDArray[np.uint64]:
        """Reads the whole stream. Returns all its ids as one column, uint64."""
        return np.concatenate([batch.ids for batch in self.batches()])


def _check_sites(chosen: RunOptions, schema: Schema | None) -> None:
    """Refuses a run whose samples have sites and whose workers have none: they would leave their sites silently."""
    if schema is not None and schema.site is not None and chosen.sites is None:
        raise InvalidArgument(
            f"the schema says that samples stay at the site in column {schema.site!r}, and workers have no sites: give "
            "--sites, the site of each worker, or take `site` out of the schema"
        )


def _check_submitters(chosen: RunOptions) -> None:
    """Refuses options that rule over the whole stream, of which a driver has one part where there are several."""
    ruling = ("iterations", "evaluate_every", "early_stop", "hot_batches")
    given = [option_name(name) for name in ruling if getattr(chosen, name)]
    if chosen.submitters > 1 and given:
        raise InvalidArgument(
            f"{' and '.join(given)} would rule over the whole stream, of which this is one part of {chosen.submitters} "
            "(--submitters): leave it out; the stream ends with the last of its parts"
        )


def simulated_stream(chosen: RunOptions, trace: NDArray[np.uint64] | None) -> SimulatedStream:
    """Opens the stream that the options describe, or the stream of a trace, uint64 [N, F], if there is one.

    Raises:
        InvalidArgument: the stream has several parts, of which the options name one.
    """
    if chosen.submitters > 1:
        raise InvalidArgument(
            "the other parts of the stream are not here: leave out --submitters, which esd train takes"
        )
    if trace is not None:
        size = sum(chosen.worker_samples())
        limit = None if chosen.iterations is None else chosen.iterations * size
        cache = chosen.cache_rows or _share(chosen.cache_ratio, trace)
        features = numbered_ids(trace.shape[1])
        return SimulatedStream(features, (), ("label",), cache, lambda: trace_batches(trace[:limit], size))
    stream = training_stream(chosen)
    return SimulatedStream(
        features=stream.dataset.features,
        dense_features=stream.dataset.dense_features,
        labels=stream.dataset.labels,
        cache_rows=chosen.cache_size(stream.whole).rows,
        batches=lambda: global_batches(stream, stream.batch_size),
        negatives=negatives_of(stream.dataset),
        table_options=table_options_of(stream.dataset),
    )


def samples_behind(batches: Iterable[SampleBatch], taken: Taken) -> Iterator[SampleBatch]:
    """Reads a stream behind the samples that a job has taken.

    Raises:
        FailedPrecondition: see `TrainingStream.behind`.
    """
    return batches.behind(taken) if isinstance(batches, TrainingStream) else without_first(batches, taken)


def first_samples(batches: Iterable[SampleBatch], limit: int | None) -> Iterator[SampleBatch]:
    """Yields the first `limit` samples in batches as they come, or all samples if there is no limit."""
    left = limit
    if left is not None and left <= 0:
        return  # a log may have no further batch
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left > 0:
            yield batch[:left]
            left -= len(batch)
        if left <= 0:
            return


def global_batches(batches: Iterable[SampleBatch], size: int) -> Iterator[SampleBatch]:
    """Cuts a stream into batches of exactly `size` samples; the last one may be shorter."""
    waiting: list[SampleBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        while count >= size:
            joined = SampleBatch.concatenate(waiting)
            yield joined[:size]
            waiting = [joined[size:]]
            count -= size
    if count:
        yield SampleBatch.concatenate(waiting)


def without_first(batches: Iterable[SampleBatch], count: int) -> Iterator[SampleBatch]:
    """Leaves out the first `count` samples, and yields the others in batches as they come.

    Raises:
        FailedPrecondition: there are not even `count` samples.
    """
    behind = count
    for batch in batches:
        if behind < len(batch):
            yield batch[behind:] if behind else batch
        behind = max(0, behind - len(batch))
    if behind:
        raise FailedPrecondition(
            f"the job has taken in {count} samples, this stream has only {count - behind}: give at least as many "
            "--iterations as before, or train in another table (--table) or an empty store"
        )


def _share(ratio: float | None, trace: NDArray[np.uint64]) -> int:
    distinct = len(distinct_values(trace))
    return max(1, round((DEFAULT_CACHE_RATIO if ratio is None else ratio) * distinct))
