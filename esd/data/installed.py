"""Readers of one's own: entry points of installed packages in the group `esd.readers`."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

from esd.data.dataset import Dataset, columns_of
from esd.data.derived import DerivedDataset
from esd.data.reader import ReadRequest
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError, InvalidArgument
from esd.services.runtime.users_code import place_of, raise_if_stopped

GROUP = "esd.readers"


def installed_readers() -> dict[str, list[str]]:
    """Returns the packages, with their versions, that offer a reader, by its name."""
    found: dict[str, list[str]] = {}
    for each in entry_points(group=GROUP):
        found.setdefault(each.name, []).append(_package(each))
    return {name: sorted(packages) for name, packages in sorted(found.items())}


def open_installed(request: ReadRequest) -> Dataset | None:
    """Opens a data set with the reader of an installed package; None if none offers one of this name.

    Raises:
        InvalidArgument: several packages do; it cannot be imported, or fails.
        EsdError: the reader refuses the request.
    """
    found = tuple(entry_points(group=GROUP, name=request.reader))
    if len(found) > 1:
        packages = " and ".join(sorted(map(_package, found)))
        raise InvalidArgument(f"data {request.reader!r} is a reader of {packages}: uninstall all but one of them")
    if not found:
        return None
    (entry,) = found
    try:
        return _Installed(entry.load()(request), _package(entry))
    except EsdError:
        raise
    except Exception as error:  # it may be anybody's code
        raise InvalidArgument(
            f"reader {request.reader!r} of {_package(entry)} ({entry.value}) fails: {type(error).__name__}: {error}"
            f"{place_of(error)}"
        ) from error


class _Installed(DerivedDataset):
    """A data set whose samples may be others with another version of the package that reads them."""

    def __init__(self, dataset: Dataset, package: str) -> None:
        super().__init__(dataset)
        self._package = package
        self._known: str | None = None

    @property
    def fingerprint(self) -> str:
        """Names the data set and the package. Later readings must find the same."""
        self._known = self._source.fingerprint
        return f"{self._known}; read by {self._package}"

    def __iter__(self) -> Iterator[SampleBatch]:
        """Reads it, and names the columns of its batches.

        Raises:
            InvalidArgument: the data have changed since `fingerprint` named them; or the reader fails, and the message
                has the place in its code.
        """
        if self._known is not None and (found := self._source.fingerprint) != self._known:
            raise InvalidArgument(
                f"the data of reader {self.name!r} of {self._package} have changed since this run began: they were "
                f"{self._known}, now they are {found}"
            )
        columns = columns_of(self)
        batches = iter(self._source)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except EsdError:
                raise
            except BaseException as error:  # it may be anybody's code
                raise_if_stopped(error)
                raise InvalidArgument(
                    f"data {self.name!r}, read by {self._package}, fails: {type(error).__name__}: {error}"
                    f"{place_of(error)}"
                ) from error
            yield batch if not isinstance(batch, SampleBatch) or batch.columns else batch.named(columns)


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
