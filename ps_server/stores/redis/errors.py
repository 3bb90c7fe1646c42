"""Errors of Redis in our words: which server, what is wrong, never a password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from services.domain.errors import FailedPrecondition, ResourceExhausted, Unavailable

# The server answers, but not with what it holds: it loads its data, changes roles or moves slots.
_PASSING = (
    exceptions.AskError,
    exceptions.BusyLoadingError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.MovedError,
    exceptions.ReadOnlyError,
    exceptions.TryAgainError,
)


_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"  # redis-py keeps the text of such an error only


@contextmanager
def translated(address: str) -> Iterator[None]:
    """Raises our errors for those of Redis.

    Raises:
        Unavailable: it is out of reach or not ready.
        FailedPrecondition: it refuses our credentials or rights, or its certificate is not trusted.
        ResourceExhausted: its memory is full.
    """
    try:
        yield
    except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
        raise FailedPrecondition(
            f"Redis at {address} refuses our user or password, or what they may do; see store and "
            "store_password_file (ESD_PS_STORE, ESD_PS_STORE_PASSWORD_FILE)"
        ) from error
    except exceptions.OutOfMemoryError as error:
        raise ResourceExhausted(f"Redis at {address} is full; raise its maxmemory or add nodes") from error
    except _PASSING as error:
        raise Unavailable(f"Redis at {address} is not ready: {error}") from error
    except (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.RedisClusterException, OSError) as error:
        if _UNTRUSTED in str(error):
            raise FailedPrecondition(
                f"the certificate of Redis at {address} is not one that store_tls_ca (ESD_PS_STORE_TLS_CA) vouches "
                f"for: {error}"
            ) from error
        raise Unavailable(f"Redis at {address} is out of reach: {error}") from error
