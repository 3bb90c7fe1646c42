"""The data that a synthetic stream imitates, `criteo`, `avazu` or `zipf`, and its options."""

from __future__ import annotations

import math
from dataclasses import dataclass
from urllib.parse import parse_qsl

from esd.services.domain.errors import InvalidArgument

# Distinct values of the 26 categories of the Kaggle Criteo data, as DLRM reports them.
_CRITEO = {
    "C1": 1460,
    "C2": 583,
    "C3": 10131227,
    "C4": 2202608,
    "C5": 305,
    "C6": 24,
    "C7": 12517,
    "C8": 633,
    "C9": 3,
    "C10": 93145,
    "C11": 5683,
    "C12": 8351593,
    "C13": 3194,
    "C14": 27,
    "C15": 14992,
    "C16": 5461306,
    "C17": 10,
    "C18": 5652,
    "C19": 2173,
    "C20": 4,
    "C21": 7046547,
    "C22": 18,
    "C23": 15,
    "C24": 286181,
    "C25": 105,
    "C26": 142572,
}
# Distinct values of the hour of the day and the 21 categories in Avazu's train file.
_AVAZU = {
    "hour of the day": 24,
    "C1": 7,
    "banner_pos": 7,
    "site_id": 4737,
    "site_domain": 7745,
    "site_category": 26,
    "app_id": 8552,
    "app_domain": 559,
    "app_category": 36,
    "device_id": 2686408,
    "device_ip": 6729486,
    "device_model": 8251,
    "device_type": 5,
    "device_conn_type": 4,
    "C14": 2626,
    "C15": 8,
    "C16": 9,
    "C17": 435,
    "C18": 4,
    "C19": 68,
    "C20": 172,
    "C21": 60,
}
_MAX_KEYS = 2**40
# With these, 80,000 synthetic Criteo samples hold 200 thousand distinct ids, as 80,000 real ones do (200,251).
_SKEW = 1.3
_AFFINITY = 0.8


@dataclass(frozen=True, slots=True)
class SyntheticOptions:
    """Everything that determines a synthetic stream besides its seed.

    Attributes:
        fields: names of the F fields.
        cardinalities: distinct values of each.
        dense_features: d.
        positive_rate: approximate share of label 1.
        skew: exponent of the Zipf-like law; 0 is uniform.
        affinity: share of a sample's fields that follow its cluster, 0..1.
        samples: length of the stream; None: endless.
    """

    name: str
    fields: tuple[str, ...]
    cardinalities: tuple[int, ...]
    dense_features: int
    positive_rate: float
    skew: float
    affinity: float
    samples: int | None

    @classmethod
    def parse(cls, text: str) -> SyntheticOptions:
        """Reads `NAME` or `NAME?option=value&...`; InvalidArgument names a wrong part."""
        name, _, query = text.partition("?")
        given = _Query(query)
        samples = given.take_count("samples", 0, 1, 2**53) or None
        match name:
            case "criteo":
                cardinalities = _CRITEO
                dense_features, positive_rate, skew = 13, 0.26, _SKEW
            case "avazu":
                cardinalities = _AVAZU
                dense_features, positive_rate, skew = 0, 0.17, _SKEW
            case "zipf":
                count = given.take_count("fields", 26, 1, 1024)
                keys = given.take_count("keys", 10_000_000, count, _MAX_KEYS)
                cardinalities = {f"field {i}": (keys + count - i) // count for i in range(1, count + 1)}
                dense_features, positive_rate, skew = 0, 0.25, 0.99
            case _:
                raise InvalidArgument(f"synthetic data {name!r} is unknown; there are criteo, avazu and zipf")
        skew = given.take("skew", skew, 0, 10)
        affinity = given.take("affinity", _AFFINITY, 0, 1)
        given.check_all_taken()
        return cls(
            name=name,
            fields=tuple(cardinalities),
            cardinalities=tuple(cardinalities.values()),
            dense_features=dense_features,
            positive_rate=positive_rate,
            skew=skew,
            affinity=affinity,
            samples=samples,
        )


class _Query:
    """The options after `?`. Each is taken once; the others are unknown."""

    def __init__(self, query: str) -> None:
        self._left = dict(parse_qsl(query, keep_blank_values=True))
        self._known: list[str] = []

    def take(self, name: str, default: float, least: float, most: float) -> float:
        """Takes a number that must be in [least, most]."""
        self._known.append(name)
        text = self._left.pop(name, None)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise InvalidArgument(f"{name}={text} in the data's options must be a number in {least:g}..{most:g}")
        return value

    def take_count(self, name: str, default: int, least: int, most: int) -> int:
        """Takes a whole number that must be in [least, most]."""
        value = self.take(name, default, least, most)
        if value != int(value):
            raise InvalidArgument(f"{name}={value:g} in the data's options must be a whole number")
        return int(value)

    def check_all_taken(self) -> None:
        if self._left:
            raise InvalidArgument(f"option {next(iter(self._left))!r} is unknown; there are {', '.join(self._known)}")
