"""How the command talks to services that run already: with the credentials of ESD_CLIENT_*."""

from __future__ import annotations

from services.runtime.security import Credentials
from services.runtime.settings import ClientSettings, load


def credentials() -> Credentials:
    """The user's. Raises SettingsError if they make no sense."""
    return Credentials.read(load(ClientSettings))
