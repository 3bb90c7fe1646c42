"""The columns of samples by name: samples are matched to a job or a model by these names, never by position alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature

Order: TypeAlias = NDArray[np.intp]

MISSING = "missing "  # begins the name of a rule for absent values; the column follows


@dataclass(frozen=True, slots=True)
class SampleColumns:
    """The columns of samples: their names in order, and the rules by which their values are made.

    Attributes:
        features: the F features.
        labels: names of the L labels.
        dense: names of the d dense features, which include a transform: `ln(1 + price)`. Empty while there are dense
            features: their names are unknown, and their number alone is compared.
        rules: the other rules of the values, by name, ascending: the label's threshold, the weight, and the stand-in of
            an absent value (`missing age`). Another job may continue a model by other rules of labels and weights.
    """

    features: tuple[Feature, ...]
    labels: tuple[str, ...]
    dense: tuple[str, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How samples of some columns become samples of others.

    Attributes:
        features: int [F], the position of each wanted feature; None: they stand in this order already.
        tables: int [F], the table of each wanted feature; None: the ids have these tables already.
        dense: int [d], the position of each wanted dense feature; None as above.
        labels: int [L], the position of each wanted label; None as above.
    """

    features: Order | None
    tables: Order | None
    dense: Order | None
    labels: Order | None

    @property
    def changes(self) -> bool:
        """Whether any column moves."""
        return any(each is not None for each in (self.features, self.tables, self.dense, self.labels))


@lru_cache(maxsize=64)
def arrangement(found: SampleColumns, wanted: SampleColumns, *, labelled: bool = True) -> Arrangement:
    """Matches columns by name.

    Args:
        found: the columns of the samples.
        wanted: the columns of the job or model.
        labelled: whether labels are compared; scores do not depend on them.

    Raises:
        InvalidArgument: a column is missing, is unknown to the job, or has another meaning there: another table,
            pooling, hash key, transform or stand-in for absent values. The message names the column.
    """
    names = [each.name for each in found.features]
    features = _positions("features", names, [each.name for each in wanted.features])
    for feature, at in zip(wanted.features, features, strict=True):
        _check_feature(found.features[at], feature)
    tables = _tables([found.features[at] for at in features], wanted.features)
    unknown = not wanted.dense or not found.dense
    dense = None if unknown else _positions("dense features", found.dense, wanted.dense)
    labels = _positions("labels", found.labels, wanted.labels) if labelled else None
    _check_rules(found, wanted, labelled=labelled)
    return Arrangement(_moved(features), tables, _moved(dense), _moved(labels))


def _positions(what: str, found: Sequence[str], wanted: Sequence[str]) -> Order:
    missing = [name for name in wanted if name not in found]
    further = [name for name in found if name not in wanted]
    if missing or further:
        parts = [f"lack {_listed(missing)}"] if missing else []
        parts += [f"have {_listed(further)}, which the model was not made with"] if further else []
        raise InvalidArgument(
            f"the {what} of the samples {' and '.join(parts)}; the model has {_listed(wanted)}: give the samples the "
            "columns and transforms of the schema that the model was trained with"
        )
    return np.array([list(found).index(name) for name in wanted], np.intp)


def _listed(names: Sequence[str], shown: int = 8) -> str:
    listed = ", ".join(map(repr, names[:shown]))
    return f"{listed} and {len(names) - shown} more" if len(names) > shown else listed or "none"


def _check_feature(found: Feature, wanted: Feature) -> None:
    for what, one, other in (
        ("pooling", found.pooling.value, wanted.pooling.value),
        ("at most", found.max_length, wanted.max_length),
        ("a hash key", found.hash_key, wanted.hash_key),
    ):
        if one != other:
            raise InvalidArgument(
                f"feature {found.name!r} of the samples has {what} {one!r}, the model was trained with {other!r}: "
                "its ids or rows would mean something else"
            )


def _tables(found: Sequence[Feature], wanted: Sequence[Feature]) -> Order | None:
    """Returns the tables of the wanted features if ids must change theirs; features that share one must share one."""
    pairs = {(one.table, other.table) for one, other in zip(found, wanted, strict=True)}
    if all(one == other for one, other in pairs):
        return None
    if len({one for one, _ in pairs}) < len(pairs) or len({other for _, other in pairs}) < len(pairs):
        raise InvalidArgument("the features of the samples share tables in another way than those of the model")
    return np.array([feature.table for feature in wanted], np.intp)


def _check_rules(found: SampleColumns, wanted: SampleColumns, *, labelled: bool) -> None:
    """Refuses other stand-ins for absent values, and other labels and weights where these are compared."""
    if not found.rules or not wanted.rules:
        return  # one of them was not made by a schema
    ours, theirs = dict(found.rules), dict(wanted.rules)
    for name in sorted(ours.keys() | theirs.keys()):
        compared = labelled or name.startswith(MISSING)
        optional = name.startswith(MISSING) and not (name in ours and name in theirs)
        if compared and not optional and ours.get(name) != theirs.get(name):
            raise InvalidArgument(
                f"{name} is {ours.get(name, 'not given')} in the schema of the samples, the model was trained with "
                f"{theirs.get(name, 'none')}"
            )


def _moved(order: Order | None) -> Order | None:
    return None if order is None or (order == np.arange(len(order))).all() else order


def changed_rules(before: Sequence[tuple[str, str]], now: Sequence[tuple[str, str]]) -> list[str]:
    """Returns a sentence for each rule that differs, in the order of names."""
    old, new = dict(before), dict(now)
    return [
        f"{name} was {old.get(name, 'not given')} and is now {new.get(name, 'not given')}"
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]
