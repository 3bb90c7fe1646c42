"""The limits of this process that explain why it, or a process that it has started, has ended (ulimit)."""

from __future__ import annotations

import resource

# The option of ulimit, the unit of its number in bytes, and the least with which services are known to start.
_LIMITS = (
    (resource.RLIMIT_AS, "v", 1024, 8 * 2**30),
    (resource.RLIMIT_DATA, "d", 1024, 8 * 2**30),
    (resource.RLIMIT_FSIZE, "f", 1024, 2**40),
    (resource.RLIMIT_NOFILE, "n", 1, 256),
    (resource.RLIMIT_NPROC, "u", 1, 512),
)


def low_limits() -> str:
    """Returns the end of an error's text that names the limits which are low; empty if none is."""
    low = [
        f"ulimit -{option} {limit // unit}"
        for kind, option, unit, enough in _LIMITS
        if (limit := resource.getrlimit(kind)[1]) != resource.RLIM_INFINITY and limit < enough
    ]
    return f"; limits of this process are low and may be the cause: {', '.join(low)}" if low else ""
