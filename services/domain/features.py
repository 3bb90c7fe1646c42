"""Features: the named columns of a sample that hold ids, and the pooling of their embedding rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from esd.services.domain.errors import InvalidArgument

MAX_FEATURES = 4096
MAX_LENGTH = 2**20  # ids of one feature in one sample
MAX_SAMPLE_IDS = 2**21  # of all features together: 16 MiB of ids, the default length of a request
_LONGEST_NAME = 256  # characters


class Pooling(Enum):
    """The form in which a model receives the rows of a feature. The value is the name in schemas.

    Example:
        >>> esd.Pooling("mean") is esd.Pooling.MEAN
        True
    """

    ONE = "one"  # the row of exactly one id
    SUM = "sum"  # the sum of the rows of any number of ids; zeros without ids
    MEAN = "mean"  # the same, divided by the number of ids
    LIST = "list"  # the rows one by one, for a model of sequences


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of ids.

    Attributes:
        name: unique among the job's features, 1..256 characters.
        table: number of its table.
        pooling: the form in which a model receives its rows.
        max_length: the most ids of it that a sample may have, 1..1,048,576; 1 with pooling ONE.
        key: the name by which its values are hashed, where it differs from `name`, such as the name of a shared table;
            empty: its own name.

    Example:
        >>> esd.Feature("genres", pooling=esd.Pooling.MEAN, max_length=8).max_length
        8
        >>> esd.Feature("genres", max_length=8)
        Traceback (most recent call last):
        ...
        esd.services.domain.errors.InvalidArgument: feature 'genres' has at most 8 ids per sample and no pooling: ...
    """

    name: str
    table: int = 0
    pooling: Pooling = Pooling.ONE
    max_length: int = 1
    key: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= _LONGEST_NAME:
            raise InvalidArgument(f"a feature's name has {len(self.name)} characters, it must have 1..{_LONGEST_NAME}")
        if self.table < 0:
            raise InvalidArgument(f"feature {self.name!r} is of table {self.table}, tables are counted from 0")
        if not 1 <= self.max_length <= MAX_LENGTH:
            raise InvalidArgument(
                f"feature {self.name!r} has at most {self.max_length} ids per sample, it must be 1..{MAX_LENGTH}"
            )
        if self.pooling is Pooling.ONE and self.max_length != 1:
            raise InvalidArgument(
                f"feature {self.name!r} has at most {self.max_length} ids per sample and no pooling: choose sum, mean "
                "or list"
            )
        if len(self.key) > _LONGEST_NAME:
            raise InvalidArgument(f"the key of feature {self.name!r} has more than {_LONGEST_NAME} characters")

    @property
    def hash_key(self) -> str:
        """The name by which its values are hashed."""
        return self.key or self.name


def single_ids(names: Iterable[str]) -> tuple[Feature, ...]:
    """Returns features of these names that have exactly one id per sample, all of the first table."""
    return tuple(Feature(name) for name in names)


def numbered_ids(count: int) -> tuple[Feature, ...]:
    """Returns `count` features that have exactly one id per sample, named by their numbers."""
    return single_ids(map(str, range(count)))


def tables_of(features: Iterable[Feature]) -> tuple[str | None, ...]:
    """Returns the names of the features' tables, by number: the name of the first feature in it; None for table 0.

    Raises:
        InvalidArgument: the numbers of the tables are not 0, 1, 2 and so on.
    """
    first: dict[int, str] = {}
    for feature in features:
        first.setdefault(feature.table, feature.name)
    if sorted(first) != list(range(len(first))):
        raise InvalidArgument(f"features are of the tables {sorted(first)}, which must be counted from 0")
    return (None, *(first[number] for number in range(1, len(first))))


def check_features(features: tuple[Feature, ...], tables: int) -> None:
    """Raises InvalidArgument unless these are valid features of a job with this many tables."""
    if not 1 <= len(features) <= MAX_FEATURES:
        raise InvalidArgument(f"the job has {len(features)} features, it must have 1..{MAX_FEATURES}")
    name, times = Counter(feature.name for feature in features).most_common(1)[0]
    if times > 1:
        raise InvalidArgument(f"two features are named {name!r}")
    for feature in features:
        if feature.table >= tables:
            raise InvalidArgument(f"feature {feature.name!r} is of table {feature.table}, the job has {tables} tables")
