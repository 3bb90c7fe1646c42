"""What must be true of a Redis before rows are trusted to it."""

from __future__ import annotations

import logging

from redis import exceptions

from ps_server.stores.redis.errors import translated
from ps_server.stores.redis.routes import Route
from services.domain.errors import FailedPrecondition

_log = logging.getLogger(__name__)


def check_servers(route: Route) -> None:
    """Looks at the configuration of every server, as far as it may be read.

    Raises:
        Unavailable: a server is out of reach.
        FailedPrecondition: a server would drop rows when its memory is full.
    """
    for server in route.servers():
        with translated(route.address):
            server.ping()
            try:
                found = {**server.config_get("maxmemory*"), **server.config_get("append*")}
            except (exceptions.ResponseError, exceptions.NoPermissionError):
                _log.warning("Redis at %s does not show its configuration; it must be noeviction", route.address)
                continue
        if int(found["maxmemory"] or 0) > 0 and found["maxmemory-policy"] != "noeviction":
            raise FailedPrecondition(
                f"Redis at {route.address} would drop rows when full: its maxmemory-policy is "
                f"{found['maxmemory-policy']}, set noeviction"
            )
        if found["appendonly"] != "yes" or found["appendfsync"] != "always":
            _log.warning(
                "Redis at %s has appendonly %s and appendfsync %s: acknowledged pushes may be lost when it dies; "
                "appendonly yes and appendfsync always keep them all",
                route.address,
                found["appendonly"],
                found["appendfsync"],
            )
