"""A schema proposed for files that have none, with facts about each column."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from esd.data.paths import find_files, folder_values
from esd.data.remote import DataFile
from esd.data.tables.columns import hashed, is_category, is_number, looks_like_data
from esd.data.tables.files import ENDINGS, Piece, delimiter, is_text, outline, pieces, recognised
from esd.data.tables.lists import is_list, lists_of
from esd.data.tables.numbers import COMMA, POINT, have_comma, numbers_of
from esd.data.tables.separators import found_separator
from esd.data.tables.times import unit_of
from esd.services.domain.errors import InvalidArgument

_log = logging.getLogger(__name__)

_FOR_EDITORS = (
    "#:schema esd-data.json",
    "# the line above lets editors complete this file: esd schema data > esd-data.json",
)
_LOOKS = (  # of all texts of a column, with a mark in one of them
    (
        r"^\s*[-+]?[$€£]?\s*[0-9]+(,[0-9]{3})*(\.[0-9]+)?\s*[%$€£]?\s*$",
        "[$€£%,]",
        "write numbers without marks, 1234.5, for a dense feature",
    ),
    (
        r"^[0-9]{1,4}[/.][0-9]{1,2}[/.][0-9]{1,4}( +[0-9]{1,2}:[0-9]{2}.*)?$",
        "[/.]",
        "write times as 2026-11-20T08:30:00 for --holdout 1d",
    ),
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LABELS = ("label", "click", "clicked", "is_click", "target", "y", "converted", "conversion", "bought", "purchased")
_TIMES = ("timestamp", "ts", "time", "event_time", "at")  # of columns of numbers, in seconds
_YES = ("yes", "y", "true", "t")  # of texts that are labels, in lower case
_MOST_WORDS = 100  # different texts of a label
_SHOWN = 8  # of those that are 0
_UNIQUE = 0.9  # a column with more distinct values per row names the row, and teaches nothing


@dataclass(frozen=True, slots=True)
class Category:
    """The facts about a column of ids.

    Attributes:
        distinct: how many values it has.
        hot_share: the part of the rows that has one of the commonest 1% of the values.
        absent: the part of the rows without a value.
        unique: whether nearly every row has a value of its own.
        longest: of a column of lists, the length of the longest; 0: it has one value per row.
        separator: of lists that are texts, the text between their values.
    """

    distinct: int
    hot_share: float
    absent: float
    unique: bool
    longest: int = 0
    separator: str | None = None

    def entry(self, name: str) -> str:
        """Returns the entry in `ids` of a schema for a column of this name."""
        if not self.longest:
            return _text(name)
        separator = "" if self.separator is None else f", separator = {_text(self.separator)}"
        return f"{{ column = {_text(name)}, max = {self.longest}{separator} }}"


@dataclass(frozen=True, slots=True)
class Threshold:
    """How numbers become labels that are 0 and 1.

    Attributes:
        positive_from: the least number of which no more than half of the rows have as much or more.
        least: of all numbers.
        most: of all numbers.
    """

    positive_from: float
    least: float
    most: float

    @classmethod
    def of(cls, numbers: NDArray[np.float64]) -> Threshold | None:
        """Returns the threshold of a column of labels, float64 [n]; None if they are 0 and 1, or all alike."""
        present = np.sort(numbers[~np.isnan(numbers)])
        values = np.unique(present)
        if len(values) < 2 or np.isin(values, (0, 1)).all():
            return None
        shares = 1 - np.searchsorted(present, values) / len(present)
        fitting = values[shares <= 0.5]
        return cls(float(fitting[0] if len(fitting) else values[-1]), float(values[0]), float(values[-1]))

    def to_toml(self) -> str:
        """Returns the line of a schema."""
        instead = f"label-range = [{self.least:g}, {self.most:g}] instead keeps the numbers, for --loss mse or another"
        return f"positive-from = {self.positive_from:g}  # 1 from here on, 0 below; {instead}"


@dataclass(frozen=True, slots=True)
class Words:
    """How texts become labels that are 0 and 1.

    Attributes:
        positive: the text that is 1: one that says yes, or else the rarest.
        others: those that are 0, the commonest first.
    """

    positive: str
    others: tuple[str, ...]

    @classmethod
    def of(cls, texts: pa.Array) -> Words:
        """Returns the positive text of a column of labels, and the others."""
        counted = sorted(_present(texts).value_counts().to_pylist(), key=lambda each: (-each["counts"], each["values"]))
        words = [str(each["values"]) for each in counted]
        positive = next((word for word in words if word.lower() in _YES), words[-1])
        return cls(positive, tuple(word for word in words if word != positive))

    def to_toml(self) -> str:
        """Returns the line of a schema."""
        shown = ", ".join(map(_text, self.others[:_SHOWN])) + (", ..." if len(self.others) > _SHOWN else "")
        return f"positive = [{_text(self.positive)}]  # labels of 1; of 0 are {shown}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A schema, and the facts that it rests on.

    Attributes:
        files: that it is for.
        rows: how many were read.
        label: the column of the label.
        made: how its numbers or texts become labels; None: they are labels.
        decimal: the mark before the fraction of numbers.
        ids: the columns of ids.
        dense: the columns of dense features, each with the mean that can stand for absent values, None where none is.
        time: the column of when samples happened, if there is one.
        time_unit: of times that are numbers; None: seconds, or no numbers.
        notes: doubts that the user must settle before the schema is used.
        unread: the columns that are left out, each with its type.
    """

    files: int
    rows: int
    label: str
    made: Threshold | Words | None
    decimal: str
    ids: Mapping[str, Category]
    dense: Mapping[str, float | None]
    time: str | None
    unread: Mapping[str, str]
    time_unit: str | None = None
    notes: tuple[str, ...] = ()

    def to_toml(self) -> str:
        """Returns the schema as a file with comments."""
        lines = [*_FOR_EDITORS, f"# from {self.rows:,} rows of {self.files} files"]
        lines += [f"# {note}" for note in self.notes]
        lines += [f"label = {_text(self.label)}"]
        lines += [] if self.made is None else [self.made.to_toml()]
        lines += [f"decimal = {_text(self.decimal)}"] if self.decimal != POINT else []
        lines.append("ids = [")
        for name, facts in self.ids.items():
            told = f"{facts.distinct:,} values, the commonest 1% of them in {facts.hot_share:.0%} of the rows"
            told += f"; {facts.absent:.2%} absent" if facts.absent else ""
            line = f"{facts.entry(name)},  # {told}"
            lines.append(f"    # {line}; nearly every row has its own" if facts.unique else f"    {line}")
        lines.append("]")
        lines.append("dense = [" + ", ".join(map(_text, self.dense)) + "]")
        lines += [f"time = {_text(self.time)}"] if self.time is not None else []
        lines += [f"time-unit = {_text(self.time_unit)}"] if self.time_unit is not None else []
        lines += [f"# not read: {name}, of type {kind}" for name, kind in self.unread.items()]
        missing = [f'{_key(name)} = ""' for name, facts in self.ids.items() if facts.absent and not facts.unique]
        missing += [f"{_key(name)} = {mean:.6g}" for name, mean in self.dense.items() if mean is not None]
        if missing:
            lines += ["", "[missing]", *missing]
        return "\n".join(lines) + "\n"


def propose(pattern: str, rows: int, label: str | None = None) -> Proposal:
    """Looks at the first rows of files and proposes a schema.

    Texts, whole numbers, dates and lists of these become ids, other numbers dense features. The first column of
    timestamps, or else of dates, or else of numbers with a name that times have, becomes the samples' time. Texts
    become lists where something separates their values. In a file of texts that no commas part, numbers may have one.

    Args:
        pattern: a file, a folder or a pattern (esd/data/paths.py).
        rows: how many to read.
        label: the column of the label; None: a number, or one of two texts, with a name that labels have, or a number
            that is always 0 or 1.

    Raises:
        InvalidArgument: there is no such file; a file is damaged or empty, or no column can be the label.
    """
    found = find_files(pattern, Path(), ENDINGS, recognised)
    outlines = {file: outline(file) for file in found}
    files = [file for file in found if not outlines[file].empty]
    if not files:
        raise InvalidArgument(f"data file {found[0]} has no rows")
    types = outlines[files[0]].columns
    numbers = [each.name for each in types if is_number(each.type) and not is_category(each.type)]
    lists = [each.name for each in types if is_list(each.type) and is_category(each.type.value_type)]
    # What happened at a moment that is over teaches nothing of others.
    moments = [each.name for each in types if kinds.is_timestamp(each.type)]
    dates = [each.name for each in types if kinds.is_date(each.type)]
    dates += [name for name, value in folder_values(files[0]).items() if _DATE.fullmatch(value or "")]
    categories = [each.name for each in types if is_category(each.type) or each.name in lists]
    categories, numbers = ([name for name in names if name not in moments] for names in (categories, numbers))
    read = list(_first(files, categories, numbers, rows))
    columns = {
        name: pa.chunked_array([piece.batch.column(name) for piece in read]).combine_chunks()
        for name in (*categories, *numbers)
    }
    unit = None
    if not moments and not dates:
        named = [each.name for each in types if is_number(each.type) and each.name.lower() in _TIMES]
        units = {name: _unit(columns[name]) for name in named if name != label}
        moments = [name for name, each in units.items() if each is not None][:1]
        for name in moments:
            unit = units[name]
            del columns[name]
        categories, numbers = ([name for name in names if name not in moments] for names in (categories, numbers))
    decimals = []
    if is_text(files[0]) and delimiter(files[0]) != COMMA and not numbers:  # which have a point
        decimals = [
            name for name in categories if kinds.is_string(types.field(name).type) and _with_comma(columns[name])
        ]
        categories = [name for name in categories if name not in decimals]
        numbers += decimals
    decimal = COMMA if decimals else POINT
    values = {
        each.name: numbers_of(columns[each.name], decimal)[0]
        for each in types
        if each.name in columns and (is_number(each.type) or each.name in decimals)
    }
    time = next(iter([*moments, *dates]), None)
    if label is None:
        label = _label(values, columns, files[0])
    elif label not in columns or label in lists:
        raise InvalidArgument(f"--label {label!r} is no column of numbers or texts of {files[0]}")
    if label not in values and not 2 <= (different := len(_present(columns[label]).unique())) <= _MOST_WORDS:
        raise InvalidArgument(
            f"--label {label!r} has {different} different texts in {files[0]}, expected 2 to {_MOST_WORDS}"
        )
    return Proposal(
        files=len(files),
        rows=sum(len(piece.batch) for piece in read),
        label=label,
        made=Threshold.of(values[label]) if label in values else Words.of(columns[label]),
        decimal=decimal,
        ids={
            name: _list(columns[name], "") if name in lists else _text_or_category(columns[name])
            for name in categories
            if name != label
        },
        dense={name: _stand_in(values[name]) for name in numbers if name != label},
        time=time,
        time_unit=None if unit == "s" else unit,
        notes=_notes(files[0], types.names) + _doubts({name: columns[name] for name in categories if name != label}),
        unread={each.name: str(each.type) for each in types if each.name not in (*columns, time)},
    )


def _unit(column: pa.Array) -> str | None:
    """Returns the unit of times that are numbers, or texts that say them; None if they are no times."""
    numbers, _ = numbers_of(column)
    return unit_of(pa.array(numbers))


def _notes(file: DataFile, names: Sequence[str]) -> tuple[str, ...]:
    """Returns doubts about the names of the columns."""
    values = [name for name in names if looks_like_data(name)]
    if not is_text(file) or not values or list(names) == [str(at) for at in range(len(names))]:
        return ()
    note = f"the first line of {file} looks like data, such as {values[0]!r}: has the file no header?"
    if values == [""] == list(names[:1]):
        note = f"the first column of {file} has no name: the numbers of rows, which pandas leaves out with index=False?"
    _log.warning("%s", note)
    return (note,)


def _doubts(columns: Mapping[str, pa.Array]) -> tuple[str, ...]:
    """Returns doubts about texts that become ids, and look like numbers or times."""
    notes = []
    for name, column in columns.items():
        if not kinds.is_string(column.type) and not kinds.is_large_string(column.type):
            continue
        texts = _present(column)
        for pattern, mark, advice in _LOOKS:
            marked = pc.match_substring_regex(texts, mark)
            if pc.any(marked).as_py() and pc.all(pc.match_substring_regex(texts, pattern)).as_py():
                shown = texts.filter(marked)[0].as_py()
                notes.append(f"column {name!r} has texts such as {shown!r}, which become ids: {advice}")
                _log.warning("%s", notes[-1])
                break
    return tuple(notes)


def _first(files: Sequence[DataFile], categories: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[Piece]:
    for file in files:
        for piece in pieces(file, categories, numbers):
            yield Piece(piece.batch.slice(0, rows), piece.first)
            rows -= len(piece.batch)
            if rows <= 0:
                return


def _label(values: Mapping[str, NDArray[np.float64]], columns: Mapping[str, pa.Array], file: DataFile) -> str:
    for name in columns:
        if name.lower() in _LABELS and (name in values or _has_two_texts(columns[name])):
            return name
    for name, numbers in values.items():
        if np.isin(numbers, (0, 1)).all():
            return name
    raise InvalidArgument(f"no column of {file} has a label's name or is always 0 or 1: name it with --label")


def _has_two_texts(column: pa.Array) -> bool:
    return not is_list(column.type) and len(_present(column).unique()) == 2


def _present(column: pa.Array) -> pa.Array:
    """Returns the values that are there; an empty text is none."""
    texts = column.cast(pa.string())
    return texts.filter(pc.fill_null(pc.not_equal(texts, ""), False))


def _with_comma(texts: pa.Array) -> bool:
    """Tells whether a column has numbers with a comma before the fraction, and nothing else.

    Where each comma has three digits behind it, it may as well stand behind a thousand.
    """
    numbers, wrong = numbers_of(texts, COMMA)
    if wrong is not None or np.isnan(numbers).all():
        return False
    thousands = pc.match_substring_regex(texts, r",[0-9]{3}\s*$").fill_null(False).to_numpy(zero_copy_only=False)
    return bool((have_comma(texts) & ~thousands).any())


def _text_or_category(column: pa.Array) -> Category:
    separator = found_separator(column)
    return _category(column) if separator is None else replace(_list(column, separator), separator=separator)


def _category(column: pa.Array) -> Category:
    ids = hashed(column.drop_null(), key=0)
    _, counts = np.unique(ids, return_counts=True)
    commonest = np.sort(counts)[-max(1, len(counts) // 100) :]
    return Category(
        distinct=len(counts),
        hot_share=float(commonest.sum()) / len(column),
        absent=column.null_count / len(column),
        unique=len(counts) > _UNIQUE * len(column),
    )


def _list(column: pa.Array, separator: str) -> Category:
    values, lengths = lists_of(column, separator)
    if not len(values):
        return Category(distinct=0, hot_share=0.0, absent=0.0, unique=True, longest=1)
    of_values = _category(values)
    return replace(of_values, unique=False, longest=int(lengths.max()))


def _text(name: str) -> str:
    """Returns a name as a text of TOML."""
    return json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")


def _stand_in(numbers: NDArray[np.float64]) -> float | None:
    absent = np.isnan(numbers)
    if not absent.any():
        return None
    return 0.0 if absent.all() else float(numbers[~absent].mean())


def _key(name: str) -> str:
    """Returns a name as a key of TOML."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else f'"{name}"'
