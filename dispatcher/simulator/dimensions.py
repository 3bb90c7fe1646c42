"""Fields with rows of different dimensions (ESD §8.2), for streams without tables: each dimension gets a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.ids import in_table
from esd.services.domain.jobs import MAX_TABLES, JobSpec


def with_dimensions(job: JobSpec, dimensions: Sequence[int]) -> tuple[JobSpec, tuple[int, ...]]:
    """Returns a job with a table for each dimension, and the number of every field's table, [F].

    The first table is the job's own, because cache sizes count its rows, even if no field has its dimension. The
    rows of all tables have its time to live and its admission.

    Args:
        job: a job with one table.
        dimensions: values per row of each field, [F].

    Raises:
        InvalidArgument: there are more dimensions than a job may have tables, or a dimension is out of range, or the
            job has several tables.
    """
    if len(job.tables) > 1:
        raise InvalidArgument("--dims is for data without tables: the schema gives the dimensions of its tables")
    distinct = list(dict.fromkeys([job.table.dimension, *dimensions]))
    if len(distinct) > MAX_TABLES:
        raise InvalidArgument(f"rows have {len(distinct)} different dimensions, a job has at most {MAX_TABLES} tables")
    numbers = tuple(distinct.index(each) for each in dimensions)
    others = [replace(job.table, name=job.table.further(str(each)), dimension=each) for each in distinct[1:]]
    features = (replace(feature, table=number) for feature, number in zip(job.features, numbers, strict=True))
    ttls, afters = job.row_ttls * len(distinct), job.admit_afters * len(distinct)
    tables = (job.table, *others)
    return replace(job, tables=tables, row_ttls=ttls, admit_afters=afters, features=tuple(features)), numbers


def in_tables(batches: Iterable[SampleBatch], numbers: Sequence[int]) -> Iterator[SampleBatch]:
    """Yields the batches with the ids of every field moved to its table; `numbers` holds the tables' numbers, [F]."""
    of_fields = np.array(numbers, np.uint64)
    for batch in batches:
        yield replace(batch, ids=in_table(batch.ids, batch.of_ids(of_fields)))
