"""Limits of concurrent calls: one for all calls, and separate ones for health calls, which any client may make."""

from __future__ import annotations

from collections import Counter
from urllib.parse import unquote

from esd.services.domain.errors import Overloaded

# Orchestrators check health without a token, and the answer reveals nothing else. Since any client can open such calls,
# they have limits of their own, per machine and in total, and do not count as other calls. A watch lasts as long as its
# peer likes; a check ends when its request has arrived, for which it has HEALTH_REQUEST_SECONDS.
_HEALTH = "/grpc.health.v1.Health/"
HEALTH_REQUEST_SECONDS = 5.0
HEALTH_CALLS_BY_PEER = 8
_HEALTH_CALLS = 256


class CallLimits:
    """Bounds the calls that are served at a time: further calls are refused, and may be repeated later.

    Args:
        calls: the most calls, without health calls.
        knob: the setting that raises the limit, for the error.
    """

    def __init__(self, calls: int, knob: str) -> None:
        self._calls = calls
        self._knob = knob
        self._taken = 0
        self._health_calls: Counter[str] = Counter()  # by method and machine

    def take(self, method: str, peer: str) -> None:
        """Admits a call; `leave`, with the same arguments, ends it.

        Args:
            method: full name of the method.
            peer: its address in gRPC's form, such as `ipv4:10.0.0.7:41234`.

        Raises:
            Overloaded: as many calls as the limit are being served.
        """
        if is_health(method):
            self._take_for_health(method, peer)
        elif self._taken >= self._calls:
            raise Overloaded(f"{self._taken} calls are being served, and the limit is {self._knob}={self._calls}")
        else:
            self._taken += 1

    def leave(self, method: str, peer: str) -> None:
        """Ends a call."""
        if is_health(method):
            self._health_calls[f"{method} {machine_of(peer)}"] -= 1
            self._health_calls += Counter()  # removes machines without calls
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
    """Returns whether a method, by its full name, belongs to the health service."""
    return method.startswith(_HEALTH)


def machine_of(peer: str) -> str:
    """Returns the machine in an address of gRPC's form: `10.0.0.7` for `ipv4:10.0.0.7:41234`.

    This machine is `localhost` under all its addresses, and IPv4 within IPv6 is IPv4.
    """
    host = unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]").removeprefix("::ffff:")
    return "localhost" if peer.startswith("unix:") or host == "::1" or host.startswith("127.") else host
