"""A schema: the columns of a table that are ids, lists of ids, dense features, labels, weight and group.

esd/data/schema_file.py reads it from a file of TOML.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic.dataclasses import dataclass

from esd.data.checked import CONFIG, LISTED, PAIR, WHOLE, Number, OneOf, Text, TextOrNumber, Whole, named
from esd.services.domain.columns import MISSING, SampleColumns
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import MAX_LENGTH, Feature, Pooling, tables_of
from esd.services.domain.tables import MAX_ADMIT_AFTER, MAX_ROW_TTL, OptimizerKind, TableSpec

CROSS = " x "  # between the names of a cross' parts
TIME_UNITS = ("s", "ms", "us", "ns")
REFUSE, CUT = "refuse", "cut"


@named("esd.Id")
@dataclass(frozen=True, slots=True, config=CONFIG)
class Id:
    """A column that has one value per row: a text, a whole number or a date.

    Attributes:
        column: its name.
        table: the table of its rows; None: the job's first one. Columns of one named table share the rows of equal
            values; without a name, every column has rows of its own.

    Example:
        >>> shared = esd.Id("item", table="items"), esd.Id("last_item", table="items")
        >>> esd.Schema(label="clicked", ids=("user", *shared)).ids[1]
        Id(column='item', table='items')
    """

    column: Text
    table: Text | None = None


@named("esd.IdList")
@dataclass(frozen=True, slots=True, config=CONFIG)
class IdList:
    """A column that has a list of values per row, or a text that is split; an absent list is an empty one.

    Attributes:
        column: its name.
        max: the most values that a row may have.
        pool: the form of their embeddings for the model: `sum` or `mean`, or `list` for one by one.
        table: as of `Id`.
        longer: the treatment of a longer list: `refuse`, or `cut` to the first `max` values.
        separator: between the values, where the column is a text.

    Example:
        >>> esd.IdList("genres", max=8, pool="mean", longer="cut", separator=",").column
        'genres'
    """

    column: Text
    max: Annotated[int, Field(ge=1, le=MAX_LENGTH), WHOLE]
    pool: Annotated[str, OneOf((Pooling.SUM.value, Pooling.MEAN.value, Pooling.LIST.value))] = Pooling.MEAN.value
    table: Text | None = None
    longer: Annotated[str, OneOf((REFUSE, CUT))] = REFUSE
    separator: Annotated[Text, Field(min_length=1)] = "|"


@named("esd.TableOptions")
@dataclass(frozen=True, slots=True, config=CONFIG)
class TableOptions:
    """The options of a named table that differ from the job's; None: the job's.

    Attributes:
        dim: values per row.
        optimizer: `sgd`, `adagrad` or `adam`.
        learning_rate: of the optimizer.
        max_norm: the largest Euclidean norm of a row after each training; 0: any.
        row_ttl: iterations without a training after which a row is forgotten; 0: none.
        admit_after: N, an id is trained from the N-th iteration on that has it; 1: at once.

    Example:
        >>> esd.TableOptions(dim=8, optimizer="adam", learning_rate=0.001).dim
        8
    """

    dim: Whole | None = None
    optimizer: Annotated[str, OneOf([kind.value for kind in OptimizerKind])] | None = None
    learning_rate: Number | None = None
    max_norm: Number | None = None
    row_ttl: Annotated[int, Field(ge=0, le=MAX_ROW_TTL), WHOLE] | None = None
    admit_after: Annotated[int, Field(ge=1, le=MAX_ADMIT_AFTER), WHOLE] | None = None


def _form(described: Any) -> str | None:
    """Returns the form of an entry of `ids`, of a program or a file."""
    if isinstance(described, str):
        return "(name)"
    if isinstance(described, IdList) or (isinstance(described, Mapping) and not _OF_LISTS.isdisjoint(described)):
        return "(list)"
    return "(one)" if isinstance(described, Id | Mapping) else None


_OF_LISTS = {"max", "pool", "longer", "separator"}
Entry = Annotated[
    Annotated[Text, Tag("(name)")] | Annotated[Id, Tag("(one)")] | Annotated[IdList, Tag("(list)")],
    Discriminator(
        _form,
        custom_error_type="entry",
        custom_error_message="it must be the name of a column, an esd.Id or an esd.IdList, which a file writes as "
        "{ column = ..., max = ... }",
    ),
]


def _labels(label: Any) -> str | None:
    return "(one)" if isinstance(label, str) else "(several)" if isinstance(label, list | tuple) else None


Columns = Annotated[tuple[Text, ...], LISTED]
Bound = Annotated[Number, AfterValidator(float)]  # of which a fingerprint of data always has the text of a float
Labels = Annotated[
    Annotated[Text, Tag("(one)")] | Annotated[Columns, Tag("(several)")],
    Discriminator(
        _labels, custom_error_type="label", custom_error_message="it must be the name of a column, or a list of names"
    ),
]


@named("a schema")
@dataclass(frozen=True, config=CONFIG)
class Schema:
    """Describes the columns of a table. Columns without a description are not read.

    Attributes:
        label: the column of the label, or the columns of several.
        ids: the columns of categories; a text stands for `Id`.
        crosses: fields made of several of `ids`, of which none is a list.
        dense: the columns of numbers.
        log: the columns among `dense` that become ln(1 + x), and 0 below 0.
        positive_from: the least label that counts as 1.
        label_range: the least and the largest label; None: labels are 0 and 1.
        missing: by column, the stand-in for an absent value; of a list, for an absent value within it.
        weight: the column of numbers that the samples' losses are multiplied by.
        group: the column of the samples' groups, such as their users, for metrics by group.
        site: the column of where samples arise, a text or a whole number, which is no feature: with `--sites` a sample
            is trained there only. It may be one of `ids`, too.
        time: the column of when samples happened, by which the last ones can be held out; it may be one of `ids`, too.
        tables: by name, how the tables that `ids` name differ.
        positive: the texts that are labels of 1; every other text is 0. None are given: labels are numbers.
        decimal: the mark before the fraction of a number in a file of texts, `.` or `,`; None: `.`.
        time_unit: of times that are numbers since 1970: `s`, `ms`, `us` or `ns`; None: seconds, and larger numbers are
            refused.

    Raises:
        InvalidArgument: something is of another kind than above; a column is named twice, or in a place that needs it
            elsewhere, too.

    Example:
        >>> schema = esd.Schema(label="clicked", ids=("user", "item"), dense=("price",), log=("price",))
        >>> [each.column for each in schema.id_columns]
        ['user', 'item']
    """

    label: Labels
    ids: Annotated[tuple[Entry, ...], LISTED]
    crosses: Annotated[tuple[Columns, ...], LISTED] = ()
    dense: Columns = ()
    log: Columns = ()
    positive_from: Number | None = None
    label_range: Annotated[tuple[Bound, Bound], PAIR] | None = None
    missing: Mapping[Text, TextOrNumber] = field(default_factory=dict)
    weight: Text | None = None
    group: Text | None = None
    site: Text | None = None
    time: Text | None = None
    tables: Mapping[Text, TableOptions] = field(default_factory=dict)
    positive: Columns = ()
    decimal: Annotated[str, OneOf((".", ","))] | None = None
    time_unit: Annotated[str, OneOf(TIME_UNITS)] | None = None

    def __post_init__(self) -> None:
        if not self.ids:
            raise InvalidArgument("a schema needs at least one column of ids")
        if not self.labels:
            raise InvalidArgument("a schema needs at least one label")
        named = [each.column for each in self.id_columns] + [*self.labels, *self.dense]
        named += [self.weight] if self.weight is not None else []
        if len(set(named)) < len(named):
            twice = next(name for name, times in Counter(named).items() if times > 1)
            raise InvalidArgument(f"the schema names column {twice!r} twice")
        single = {each.column for each in self.id_columns if isinstance(each, Id)}
        for cross in self.crosses:
            if len(cross) < 2 or not set(cross) <= single:
                raise InvalidArgument(f"the cross {list(cross)} must name at least two of the ids {sorted(single)}")
        for name in self.tables:
            if name not in self.table_names:
                raise InvalidArgument(f"tables has {name!r}, which no column of ids is of")
        self._check_labels()
        self._check_numbers()

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The columns of the labels."""
        return (self.label,) if isinstance(self.label, str) else tuple(self.label)

    @cached_property
    def id_columns(self) -> tuple[Id | IdList, ...]:
        """The columns of `ids`, each described."""
        return tuple(Id(each) if isinstance(each, str) else each for each in self.ids)

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """All columns whose values are told apart, each once."""
        group = () if self.group is None else (self.group,)
        return tuple(dict.fromkeys([*(each.column for each in self.id_columns), *group]))

    @cached_property
    def times(self) -> tuple[str, ...]:
        """The column of times, if there is one."""
        return () if self.time is None else (self.time,)

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """The column of sites, if there is one."""
        return () if self.site is None else (self.site,)

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers: the labels, the dense features, the weight."""
        return (*self.labels, *self.dense, *(() if self.weight is None else (self.weight,)))

    @cached_property
    def lists(self) -> frozenset[str]:
        """The columns of lists of ids."""
        return frozenset(each.column for each in self.id_columns if isinstance(each, IdList))

    @cached_property
    def number_names(self) -> frozenset[str]:
        """The columns of numbers, as a set: a schema may have thousands of them."""
        return frozenset(self.numbers)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """All columns that samples are made of."""
        return (*self.categories, *self.numbers)

    @cached_property
    def table_names(self) -> tuple[str | None, ...]:
        """The tables of the ids, by number; None is the job's first one, which is the first here if it is used."""
        used = dict.fromkeys([*(each.table for each in self.id_columns), *(None for _ in self.crosses)])
        return (*([None] if None in used else []), *(name for name in used if name is not None))

    @cached_property
    def features(self) -> tuple[Feature, ...]:
        """The F features: the ids, then the crosses."""
        number = {name: at for at, name in enumerate(self.table_names)}
        features = [
            Feature(each.column, number[each.table], Pooling(each.pool), each.max, key=each.table or "")
            if isinstance(each, IdList)
            else Feature(each.column, number[each.table], key=each.table or "")
            for each in self.id_columns
        ]
        return (*features, *(Feature(CROSS.join(cross), number[None]) for cross in self.crosses))

    @cached_property
    def dense_features(self) -> tuple[str, ...]:
        """Names of the d dense features, with their transforms."""
        return tuple(f"ln(1 + {name})" if name in self.log else name for name in self.dense)

    @cached_property
    def rules(self) -> tuple[tuple[str, str], ...]:
        """The rules of labels, weights and absent values, by name (`SampleColumns.rules`)."""
        label = "0 or 1"
        if self.positive:
            label = f"1 for {', '.join(map(repr, self.positive))}"
        elif self.positive_from is not None:
            label = f"1 from {self.positive_from:g} on"
        elif self.label_range is not None:
            label = f"{self.label_range[0]:g} to {self.label_range[1]:g}"
        rules = {"label": label} | ({} if self.weight is None else {"weight": self.weight})
        rules |= {f"{MISSING}{name}": repr(value) for name, value in self.missing.items()}
        return tuple(sorted(rules.items()))

    @cached_property
    def sample_columns(self) -> SampleColumns:
        """The columns of the samples that the schema makes."""
        return SampleColumns(self.features, self.labels, self.dense_features, self.rules)

    @cached_property
    def to_score(self) -> Schema:
        """The same without the columns that only training needs, except the labels: weight, group, site and time."""
        needed = {*(each.column for each in self.id_columns), *self.dense}
        missing = {name: value for name, value in self.missing.items() if name in needed}
        return replace(self, weight=None, group=None, site=None, time=None, time_unit=None, missing=missing)

    def to_json(self) -> str:
        """Returns one text for each schema that makes other samples.

        Keys without a value are left out, so that new keys of later versions change no text of today.
        """
        said = _said(asdict(self)) | {"ids": [_said(asdict(each)) for each in self.id_columns]}
        for options in said.get("tables", {}).values():
            for name in ("max_norm", "row_ttl", "admit_after"):  # the samples do not depend on them
                del options[name]
        return json.dumps(said, sort_keys=True)

    def _check_labels(self) -> None:
        if (self.positive_from is not None) + (self.label_range is not None) + bool(self.positive) > 1:
            raise InvalidArgument("positive, positive_from and label_range say what labels are: give one of them")
        if self.positive_from is not None and not math.isfinite(self.positive_from):
            raise InvalidArgument(f"positive_from is {self.positive_from}, it must be finite")
        if self.label_range is not None:
            least, most = self.label_range
            if not least < most:
                raise InvalidArgument(
                    f"label_range is {least:g} to {most:g}, the least label must be below the largest"
                )

    def _check_numbers(self) -> None:
        for name in self.log:
            if name not in self.dense:
                raise InvalidArgument(f"log names {name!r}, which is not among the dense columns {list(self.dense)}")
        for name, value in self.missing.items():
            if name not in (*self.categories, *self.dense, self.weight):
                raise InvalidArgument(f"missing names {name!r}, which is neither an id nor a dense column")
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if name not in self.categories and not number:
                raise InvalidArgument(f"missing.{name} is {value!r}, a dense column needs a finite number")


def job_tables(
    schema: Schema | None, features: Sequence[Feature], first: TableSpec, of_reader: Mapping[str, TableOptions]
) -> tuple[TableSpec, ...]:
    """Returns the tables of a job's features, by number.

    Args:
        schema: describes how they differ; None: the reader does, and they have the names of their first features.
        features: of the job.
        first: the job's first table.
        of_reader: without a schema, options of tables by name; the name of the first one is empty.
    """
    options = of_reader if schema is None else schema.tables
    tables = []
    for number, name in enumerate(tables_of(features) if schema is None else schema.table_names):
        said = options.get(name or "", TableOptions())
        dimension = first.dimension if said.dim is None else said.dim
        kind = first.optimizer.kind if said.optimizer is None else OptimizerKind(said.optimizer)
        rate = first.optimizer.learning_rate if said.learning_rate is None else said.learning_rate
        norm = first.optimizer.max_norm if said.max_norm is None else said.max_norm
        full_name = first.name if number == 0 else first.further(str(name))
        trained = replace(first.optimizer, kind=kind, learning_rate=rate, max_norm=norm)
        tables.append(TableSpec(full_name, dimension, trained, first.seed, init_scale=dimension**-0.5))
    return tuple(tables)


def row_ttls(schema: Schema | None, features: Sequence[Feature], default: int) -> tuple[int, ...]:
    """Returns the time to live of the rows of a job's tables, by number; none if no table has one.

    Args:
        schema: says how they differ; None: they do not.
        features: of the job.
        default: the time to live of a table that the schema leaves out.
    """
    ttls = tuple(default if each.row_ttl is None else each.row_ttl for each in _table_options(schema, features))
    return ttls if any(ttls) else ()


def admit_afters(schema: Schema | None, features: Sequence[Feature], default: int) -> tuple[int, ...]:
    """Returns N by table of a job: an id is trained from the N-th iteration on that has it. None if N is 1 for all.

    Args:
        schema: says how they differ; None: they do not.
        features: of the job.
        default: N of a table that the schema leaves out.
    """
    given = [each.admit_after for each in _table_options(schema, features)]
    afters = tuple(default if each is None else each for each in given)
    return afters if max(afters) > 1 else ()


def _table_options(schema: Schema | None, features: Sequence[Feature]) -> list[TableOptions]:
    """Returns the options of each of a job's tables, by number."""
    if schema is None:
        return [TableOptions() for _ in tables_of(features)]
    return [schema.tables.get(name or "", TableOptions()) for name in schema.table_names]


def _said(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, (), {})}
