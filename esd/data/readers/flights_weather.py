"""Hourly weather at the three New York airports, as standardised dense features of a flight.

The constants are round figures of New York's climate, not statistics of this file: nothing about the rest of the
year flows into a sample. Every feature is about in [-3, 3] and cut at +-5 (one wind speed in the file is 1,048 mph).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from esd.data.records import Column, Kind, Records, TextFormat

_MEASURES = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
WEATHER_FORMAT = TextFormat(
    columns=(
        Column("origin", Kind.ID),
        Column("year", Kind.INTEGER),
        Column("month", Kind.INTEGER),
        Column("day", Kind.INTEGER),
        Column("hour", Kind.INTEGER),
        *(Column(name, Kind.DECIMAL, optional=True) for name in _MEASURES),
        Column("time_hour", Kind.SKIP),
    ),
    delimiter=",",
    header=True,
    quoted=True,
    missing="NA",
)
WEATHER_FEATURES = (
    "temperature",
    "dew point",
    "humidity",
    "wind from north",
    "wind from east",
    "wind speed",
    "wind gust",
    "precipitation",
    "pressure",
    "visibility",
    "weather unknown",
    "pressure unknown",
)
_CUT = 5.0


class HourlyWeather:
    """Finds the weather of an airport and hour."""

    def __init__(self, records: Records) -> None:
        year, month, day, hour = records.numbers[:, :4].astype(np.int64).T
        self._airports = np.unique(records.ids[:, 0])
        keys = self._keys(records.ids[:, 0], days_since_1970(year, month, day), hour)
        # An hour that the end of summer time repeats counts once.
        self._known, rows = np.unique(keys, return_index=True)
        features = _standardise(records.numbers[rows, 4:])
        self._features = np.concatenate([features, _standardise(np.full((1, len(_MEASURES)), np.nan))])

    def at(self, origin: NDArray[np.uint64], day: NDArray[np.int64], hour: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the features of n flights, float64 [n, 12].

        Args:
            origin: ids of airports in the records.
            day: days since 1970, local time.
            hour: 0..23, local time.
        """
        keys = self._keys(origin, day, hour)
        found = np.searchsorted(self._known, keys)
        unknown = self._known[np.minimum(found, len(self._known) - 1)] != keys
        return self._features[np.where(unknown, len(self._known), found)]

    def _keys(self, origin: NDArray[np.uint64], day: NDArray[np.int64], hour: NDArray[np.int64]) -> NDArray[np.int64]:
        return (day * 24 + hour) * len(self._airports) + np.searchsorted(self._airports, origin)


def days_since_1970(year: NDArray[np.int64], month: NDArray[np.int64], day: NDArray[np.int64]) -> NDArray[np.int64]:
    """Day numbers of n dates, int64 [n]."""
    first_of_month = ((year - 1970) * 12 + month - 1).astype("datetime64[M]").astype("datetime64[D]")
    return first_of_month.astype(np.int64) + day - 1


def _standardise(measures: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the features [n, 12] of measures [n, 9]; an absent measure becomes 0, the average."""
    temperature, dew_point, humidity, direction, speed, gust, rain, pressure, visibility = measures.T
    radians = np.deg2rad(direction)
    features = np.column_stack(
        [
            (temperature - 55) / 18,  # degrees Fahrenheit
            (dew_point - 41) / 19,
            (humidity - 63) / 19,  # per cent
            speed * np.cos(radians) / 10,  # miles per hour
            speed * np.sin(radians) / 10,
            (speed - 10) / 6,
            gust / 25,  # absent: no gusts
            rain / 0.1,  # inches
            (pressure - 1018) / 7.5,  # millibars
            (visibility - 9) / 2,  # miles
            np.isnan(temperature),
            np.isnan(pressure),
        ]
    )
    bounded: NDArray[np.float64] = np.clip(np.nan_to_num(features), -_CUT, _CUT)
    return bounded
