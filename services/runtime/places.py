"""How many calls are served at a time: in all, and of those for health, which anybody may make."""

from __future__ import annotations

from collections import Counter
from urllib.parse import unquote

from esd.services.domain.errors import Overloaded

# Orchestrators ask for health without a token, and the answer says nothing else. So anybody can open such calls, and
# they have limits of their own, by machine and in total, that leave the places of the other calls alone. A watch lasts
# as long as its peer likes; a check is over as soon as its request is there, for which it has HEALTH_REQUEST_SECONDS.
_HEALTH = "/grpc.health.v1.Health/"
HEALTH_REQUEST_SECONDS = 5.0
HEALTH_CALLS_BY_PEER = 8
_HEALTH_CALLS = 256


class Places:
    """The calls that are served at a time: more are refused, and may be made again later.

    Args:
        calls: the most calls, those for health apart.
        knob: the setting that raises the limit, for the error.
    """

    def __init__(self, calls: int, knob: str) -> None:
        self._calls = calls
        self._knob = knob
        self._taken = 0
        self._health_calls: Counter[str] = Counter()  # by method and machine

    def take(self, method: str, peer: str) -> None:
        """Gives a call a place; `leave`, with the same arguments, gives it back.

        Args:
            method: its full name.
            peer: its address as gRPC writes it, such as `ipv4:10.0.0.7:41234`.

        Raises:
            Overloaded: there is none left.
        """
        if is_health(method):
            self._take_for_health(method, peer)
        elif self._taken >= self._calls:
            raise Overloaded(f"{self._taken} calls are being served, and the limit is {self._knob}={self._calls}")
        else:
            self._taken += 1

    def leave(self, method: str, peer: str) -> None:
        """Takes the place of a call back."""
        if is_health(method):
            self._health_calls[f"{method} {machine_of(peer)}"] -= 1
            self._health_calls += Counter()  # forgets machines without calls
        else:
            self._taken -= 1

    def _take_for_health(self, method: str, peer: str) -> None:
        machine = f"{method} {machine_of(peer)}"
        if self._health_calls[machine] >= HEALTH_CALLS_BY_PEER or self._health_calls.total() >= _HEALTH_CALLS:
            raise Overloaded(
                f"too many calls of {method} are open: {HEALTH_CALLS_BY_PEER} from one machine and {_HEALTH_CALLS} "
                "in all are served at a time; end some of them"
            )
        self._health_calls[machine] += 1


def is_health(method: str) -> bool:
    """Tells whether a method, by its full name, is one of the health service."""
    return method.startswith(_HEALTH)


def machine_of(peer: str) -> str:
    """Returns the machine in an address as gRPC writes it: `10.0.0.7` for `ipv4:10.0.0.7:41234`.

    This machine is `localhost` whichever way it is reached, and IPv4 within IPv6 is IPv4.
    """
    host = unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]").removeprefix("::ffff:")
    return "localhost" if peer.startswith("unix:") or host == "::1" or host.startswith("127.") else host
