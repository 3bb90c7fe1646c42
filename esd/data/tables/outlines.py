"""The look at all files of a data set before the first is read: whether they fit the schema, and each other."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow.types as kinds

from esd.data.remote import DataFile
from esd.data.schema import Schema
from esd.data.tables.columns import check_types, same_ids
from esd.data.tables.files import Outline, outline
from esd.services.domain.errors import InvalidArgument

_THREADS = 4  # that look at files, which wait for disks
_REPORTED = 1000  # files after which the log tells how many were looked at

_log = logging.getLogger(__name__)


def outlines_of(files: Sequence[DataFile], schema: Schema, *, labelled: bool) -> dict[DataFile, int | None]:
    """Looks at files, and returns the number of rows of each that has some; None if only reading it would tell.

    Most files of a data set have the same columns, which are checked once.

    Args:
        files: at least one.
        schema: describes their columns.
        labelled: whether the labels must be there.

    Raises:
        InvalidArgument: a file does not fit the schema, is damaged, or differs from the others; or all are empty.
    """
    rows: dict[DataFile, int | None] = {}
    empty: list[DataFile] = []
    first: tuple[DataFile, Outline] | None = None  # with rows
    checked: Outline | None = None  # the latest that fits
    for number, (file, found) in enumerate(_looked_at(files), 1):
        same = checked is not None and found.texts == checked.texts and found.columns.equals(checked.columns)
        if not same:
            check_types(schema, found.columns, f"data file {file}", texts=found.texts, labelled=labelled)
            if first is not None and not found.empty:
                _check_same(schema, first[1], found, f"{file} and {first[0]}")
        if found.empty:
            empty.append(file)
        else:
            checked, first = found, first or (file, found)
            rows[file] = found.rows
        if number % _REPORTED == 0:
            _log.info("looked at %d of %d data files", number, len(files))
    if not rows:
        raise InvalidArgument(f"data file {files[0]} has no rows" + _and_others(len(files) - 1))
    if empty:
        _log.warning("data file %s has no rows%s, and is left out", empty[0], _and_others(len(empty) - 1))
    return rows


def _looked_at(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, Outline]]:
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="esd-outline")
    try:
        yield from zip(files, pool.map(outline, files), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


def _and_others(count: int) -> str:
    return f", and neither have {count} others" if count else ""


def _check_same(schema: Schema, first: Outline, found: Outline, files: str) -> None:
    """Refuses a column whose type changes from file to file: its values would have other ids from there on.

    Texts may be of any type; but whole numbers in one file and numbers with a fraction, `12.0`, in another are told
    apart by their texts.
    """
    for name in dict.fromkeys([*schema.categories, *schema.sites, *schema.times]):
        before, now = first.columns.field(name).type, found.columns.field(name).type
        if kinds.is_null(before) or kinds.is_null(now):
            continue
        if name in first.texts or name in found.texts:
            looks = [(before, name in first.texts), (now, name in found.texts)]
            fraction = any(kinds.is_floating(kind) and written for kind, written in looks)
            if fraction and any(kinds.is_integer(kind) for kind, _ in looks) and name in schema.categories:
                raise InvalidArgument(
                    f"column {name!r} has whole numbers, such as 12, in one of {files}, and 12.0 in the other: these "
                    "are two ids; write both alike (pandas: astype('Int64'))"
                )
        elif not same_ids(before, now):
            raise InvalidArgument(f"column {name!r} is of another type in {files}: {now} and {before}")
