"""Sites: where samples arise and workers stand. A sample with a site is trained by workers of its site only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import InvalidArgument

LONGEST_SITE = 64  # characters of a name


def site_key(name: str) -> int:
    """Returns the number that stands for a site in samples: it depends on the name alone, not on a job's other sites.

    Example:
        >>> esd.site_key("north") == esd.site_key("north"), esd.site_key("north") == esd.site_key("south")
        (True, False)
    """
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def check_site(name: str, owner: str) -> None:
    """Raises InvalidArgument unless a site's name has 1 to 64 characters, without a comma or space at its ends."""
    if not 1 <= len(name) <= LONGEST_SITE or "," in name or name != name.strip():
        raise InvalidArgument(
            f"the site of {owner} is {name!r}, its name must have 1..{LONGEST_SITE} characters, no comma, and no space "
            "at its ends"
        )


@dataclass(frozen=True)
class WorkerSites:
    """The sites of a job's workers.

    Attributes:
        of_workers: the name of each worker's site, by slot, [n].
    """

    of_workers: tuple[str, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The S sites, each once, in the order of their first workers."""
        return tuple(dict.fromkeys(self.of_workers))

    @cached_property
    def numbers(self) -> NDArray[np.int32]:
        """The place of each worker's site in `names`, int32 [n]."""
        return np.array([self.names.index(name) for name in self.of_workers], np.int32)

    @cached_property
    def slots(self) -> tuple[tuple[int, ...], ...]:
        """The slots of each site's workers, in the order of `names`."""
        return tuple(tuple(np.flatnonzero(self.numbers == number).tolist()) for number in range(len(self.names)))

    def of_samples(self, keys: NDArray[np.uint64], first: int = 0) -> NDArray[np.int32]:
        """Returns the place of each sample's site in `names`, int32 [k].

        Args:
            keys: the sites of samples, uint64 [k], as `site_key` makes them.
            first: the number of samples of the stream before them, for errors.

        Raises:
            InvalidArgument: a sample is of another site.
        """
        known = np.array([site_key(name) for name in self.names], np.uint64)
        order = np.argsort(known)
        found = order[np.minimum(np.searchsorted(known[order], keys), len(known) - 1)]
        wrong = known[found] != keys
        if wrong.any():
            sample = int(np.argmax(wrong))
            raise InvalidArgument(
                f"sample {first + sample} of the stream is of a site without workers, of the key {int(keys[sample])}; "
                f"workers are at {', '.join(map(repr, self.names))} (--sites, ESD_WORKER_SITE)"
            )
        return found.astype(np.int32)

    def workloads(self, samples: Sequence[int], shares: Sequence[int]) -> NDArray[np.int32]:
        """Shares each site's samples of a batch out over its workers, in proportion: int32 [n].

        Args:
            samples: of each site, in the order of `names`.
            shares: of each worker, [n]; 0 of a worker that is away.

        Raises:
            InvalidArgument: a site has samples and no worker with a share.
        """
        workloads = np.zeros(len(self.of_workers), np.int32)
        for name, slots, count in zip(self.names, self.slots, samples, strict=True):
            of_site = [shares[slot] for slot in slots]
            if count and not sum(of_site):
                raise InvalidArgument(f"{count} samples of a batch are of site {name!r}, which has no worker with work")
            workloads[list(slots)] = in_proportion(of_site, count) if count else 0
        return workloads


@lru_cache(maxsize=8)
def sites_of_workers(of_workers: tuple[str, ...]) -> WorkerSites:
    """Returns the sites of a job's workers, which every batch of the job asks for."""
    return WorkerSites(of_workers)


def in_proportion(shares: Sequence[int], count: int) -> list[int]:
    """Shares `count` out in proportion to `shares`, by largest remainder, ties to the first; the shares' sum is > 0."""
    total = sum(shares)
    parts = [divmod(share * count, total) for share in shares]
    whole = [quotient for quotient, _ in parts]
    order = sorted(range(len(parts)), key=lambda at: (-parts[at][1], at))
    for at in order[: count - sum(whole)]:
        whole[at] += 1
    return whole
