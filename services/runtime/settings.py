"""Settings of a service: flags over environment over TOML file over defaults. All mistakes are reported at once.

The class of a service names its environment prefix; its section of the file named by `ESD_CONFIG` follows from it:

    class ParameterServerSettings(ServerSettings, env_prefix="ESD_PS_"):
        store: str = "memory"          # ESD_PS_STORE, `esd serve ps --store`, or `store` under [ps]

    settings = load(ParameterServerSettings)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.congestion import check_congestion
from esd.services.runtime.documents import read_toml, suggestion
from esd.services.runtime.logs import LogLevel
from esd.services.runtime.quantities import Size
from esd.services.runtime.roles import Role, RolesByName

CONFIG_VARIABLE = "ESD_CONFIG"
SECTIONS = ("ps", "dispatcher", "worker", "model", "lanes", "client")

# The only default that is determined at run time, in words.
NUMBER_OF_PROCESSORS = "number of processors"

DEFAULT_MAX_MESSAGE_BYTES = 64 * 2**20
DEFAULT_MAX_REQUEST_BYTES = 16 * 2**20  # a pull of a million rows

# Rows travel in frames of 1 MiB and a head. Samples travel in messages of 4 MiB, which a parameter server logs as they
# come (tests/unit/test_limits.py).
LEAST_MESSAGE_BYTES = 2 * 2**20
LEAST_LOGGED_BYTES = 8 * 2**20

# gRPC would let the window of a call grow to megabytes with the measured bandwidth and delay of the link, even for
# strangers that are about to be refused: 64 such connections took 240 MB.
DEFAULT_WINDOW_BYTES = 2**18


class SettingsError(InvalidArgument):
    """One or more settings are wrong; the message lists all of them."""


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of `host:port` or `[ipv6]:port`.

    Raises:
        ValueError: the address has neither form, or the name of the host is none that could be looked up.
    """
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (colon and bare and port.isdecimal() and int(port) < 2**16) or (":" in bare) != (host != bare):
        raise ValueError(
            f"{address!r} is not host:port with a port in 0..65535, such as 127.0.0.1:50051 or [::1]:50051"
        )
    try:
        bare.encode("idna")
    except UnicodeError as error:
        raise ValueError(f"{address!r} names no host: {error}") from error
    return bare, int(port)


def split_addresses(listed: str) -> tuple[str, ...]:
    """Returns the addresses that commas separate; none of an empty text. Raises ValueError as `split_address`."""
    addresses = tuple(address.strip() for address in listed.split(",")) if listed else ()
    for address in addresses:
        split_address(address)
    return addresses


def join_address(host: str, port: int | str) -> str:
    """Returns `host:port`, or `[ipv6]:port`; `split_address` is the inverse."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def _address(value: str) -> str:
    split_address(value)
    return value


def _addresses(listed: str) -> str:
    return ",".join(split_addresses(listed))


def _port_or_off(value: object) -> object:
    return None if value in (-1, "-1", "none", "off") else value


def _roles_by_name(listed: str) -> str:
    try:
        RolesByName(listed)
    except InvalidArgument as error:
        raise ValueError(str(error)) from error
    return listed


def _readable(path: Path) -> Path:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ValueError(error.strerror) from error
    return path


Address = Annotated[str, AfterValidator(_address)]
Addresses = Annotated[str, AfterValidator(_addresses)]
PortOrOff = Annotated[Annotated[int, Field(ge=0, lt=2**16)] | None, BeforeValidator(_port_or_off)]
ReadableFile = Annotated[Path, AfterValidator(_readable)]
ListedClients = Annotated[str, AfterValidator(_roles_by_name)]
Congestion = Annotated[str, AfterValidator(check_congestion)]


class Settings(BaseSettings):
    """Base of all settings: frozen, refuses unknown keys, hides secrets (SecretStr) in every text."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_ignore_empty=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic-settings'
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Orders the sources: arguments over environment over file."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=_read_file(cls.section()))

    @classmethod
    def variable(cls, field: str) -> str:
        """Returns the environment variable of a field, for messages, such as ESD_PS_LISTEN."""
        return f"{cls.model_config['env_prefix']}{field}".upper()

    @classmethod
    def flag(cls, field: str) -> str:
        """Returns the option of `esd serve` that sets a field, such as --metrics-port."""
        return "--" + field.replace("_", "-")

    @classmethod
    def section(cls) -> str:
        """Returns the section of the TOML file: `ps` for the prefix ESD_PS_."""
        return cls.model_config["env_prefix"].removeprefix("ESD_").removesuffix("_").lower()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The documentation of one setting, in the help of `esd serve` and in docs/reference/settings.md.

    Attributes:
        field: its name in the settings class, and its key in the file.
        variable: its environment variable.
        flag: its option of `esd serve`.
        switch: whether the flag takes no value, and has an opposite that begins with --no-.
        default: the default as people write it; empty for no value, None if the setting is required.
        meaning: the field's description.
    """

    field: str
    variable: str
    flag: str
    switch: bool
    default: str | None
    meaning: str


def explain(settings: type[Settings]) -> Iterator[Explanation]:
    """Explains every setting of a service: its own ones first, then the common ones."""
    for field, info in sorted(settings.model_fields.items(), key=lambda item: item[0] in ServerSettings.model_fields):
        yield Explanation(
            field=field,
            variable=settings.variable(field),
            flag=settings.flag(field),
            switch=info.annotation is bool,
            default=_default_text(info.default if info.default_factory is None else NUMBER_OF_PROCESSORS),
            meaning=info.description or "",
        )


def _default_text(value: Any) -> str | None:
    if value is PydanticUndefined:
        return None
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


class PeerSettings(Settings):
    """The credentials of a process towards its peers. All unset: plaintext, for one machine only.

    Attributes:
        role: selects the token to send from a token_file with several; None: the process calls no service, or is a
            user's.
    """

    role: ClassVar[Role | None] = None

    tls_ca: ReadableFile | None = Field(
        None,
        description="PEM file of the certificate authorities that peers are checked against; when set, "
        "connections to other services are encrypted",
    )
    tls_certificate: ReadableFile | None = Field(
        None, description="PEM file of this process's certificate; when set, its own service is encrypted"
    )
    tls_key: ReadableFile | None = Field(None, description="PEM file of the certificate's private key")
    token_file: ReadableFile | None = Field(
        None,
        description="file of the token that is sent with every call. A service requires it of every caller; if "
        "its file has lines `ROLE TOKEN`, it requires one of these tokens, and sends the token of its own role",
    )


class ClientSettings(PeerSettings, env_prefix="ESD_CLIENT_"):
    """The settings of the `esd` command as a client of running services."""


class ServerSettings(PeerSettings):
    """Settings of all services."""

    listen: Address = Field("127.0.0.1:0", description="host:port of the gRPC service; port 0 takes any free one")
    metrics_port: PortOrOff = Field(
        0, description="port of the Prometheus metrics page; 0 takes any free one, none (or -1) turns it off"
    )
    log_level: LogLevel = Field("info", description="debug, info, warning or error")
    max_message_bytes: Size = Field(
        DEFAULT_MAX_MESSAGE_BYTES,
        ge=LEAST_MESSAGE_BYTES,
        lt=2**31,
        description="longest answer that is sent or accepted, in bytes, at least 2 MiB; the same for all services",
    )
    max_request_bytes: Size = Field(
        DEFAULT_MAX_REQUEST_BYTES,
        ge=2**16,
        lt=2**31,
        description="longest request that is accepted, in bytes",
    )
    window_bytes: Size = Field(
        DEFAULT_WINDOW_BYTES,
        ge=2**16,
        lt=2**31,
        description="bytes of a call that a client may send before they are read",
    )
    congestion: Congestion = Field(
        "",
        description="congestion control of all TCP connections of this process, such as reno or cubic; empty: the "
        "kernel's default",
    )
    max_concurrent_rpcs: int = Field(
        1024,
        ge=1,
        description="calls served at the same time, without health calls; more are refused with RESOURCE_EXHAUSTED",
    )
    grace_seconds: float = Field(
        5.0, ge=0, le=3600, description="time that running calls get to finish when the service stops"
    )
    tls_clients: ListedClients = Field(
        "",
        description="names of which every client's certificate must have one, separated by commas: NAME=ROLE, a role's "
        "own name, * for all of these, *=ROLE for any name; empty: clients need no certificate",
    )


S = TypeVar("S", bound=Settings)


def load(settings: type[S], **given: Any) -> S:
    """Reads the settings of a service from environment and file.

    Args:
        settings: the service's class.
        given: values of fields, which take precedence over both; None counts as not given.

    Raises:
        SettingsError: a setting is wrong; the message lists every mistake with its variable and its place in the file.
    """
    mistakes = _unknown_variables(settings)
    given = {field: value for field, value in given.items() if value is not None}
    try:
        loaded = settings(**given)
    except ValidationError as error:
        mistakes += [_describe(settings, dict(mistake), given) for mistake in error.errors()]
    if mistakes:
        raise SettingsError("wrong settings:" + "".join(f"\n  {mistake}" for mistake in mistakes))
    return loaded


def given_settings(settings: type[Settings]) -> dict[str, tuple[str, object]]:
    """Returns the settings of a service that environment and file give: by field its place for messages, and its value.

    Raises:
        SettingsError: the file cannot be read.
    """
    variables = {name.upper(): (name, value) for name, value in os.environ.items() if value}
    section, path = settings.section(), os.environ.get(CONFIG_VARIABLE)
    given: dict[str, tuple[str, object]] = {
        field: (f"{field} under [{section}] in {path}", value) for field, value in _read_file(section).items()
    }
    for field in settings.model_fields:
        if (variable := settings.variable(field)) in variables:
            given[field] = variables[variable]
    return given


def _read_file(section: str) -> dict[str, Any]:
    path = os.environ.get(CONFIG_VARIABLE)
    if not path:
        return {}
    try:
        document = read_toml(Path(path), f"{CONFIG_VARIABLE}={path}")
    except InvalidArgument as error:
        raise SettingsError(str(error)) from None
    unknown = [name for name in document if name not in SECTIONS]
    if unknown:
        raise SettingsError(
            f"{CONFIG_VARIABLE}={path}: no such section: {', '.join(unknown)}; choose from {', '.join(SECTIONS)}"
        )
    values = document.get(section, {})
    if not isinstance(values, dict):
        raise SettingsError(f"{CONFIG_VARIABLE}={path}: {section} must be a section, [{section}]")
    return values


def _unknown_variables(settings: type[Settings]) -> list[str]:
    prefix = settings.model_config["env_prefix"].upper()
    known = [settings.variable(field) for field in settings.model_fields]
    return [
        f"{name}: no such setting{suggestion(name.upper(), known)}"
        for name in sorted(os.environ)
        if name.upper().startswith(prefix) and name.upper() not in known
    ]


def _describe(settings: type[Settings], mistake: dict[str, Any], given: dict[str, Any]) -> str:
    """Returns one line for one of pydantic's mistakes: variable, place, value, reason."""
    field = str(mistake["loc"][0])
    variable = settings.variable(field)
    in_file = field not in given and variable not in map(str.upper, os.environ)
    place = f" ({field} under [{settings.section()}] in {os.environ.get(CONFIG_VARIABLE)})" if in_file else ""
    if mistake["type"] == "missing":
        return f"{variable} must be set"
    if mistake["type"] == "extra_forbidden":
        return f"{variable}{place}: no such setting{suggestion(field, settings.model_fields)}"
    annotation = settings.model_fields[field].annotation
    secret = SecretStr in (annotation, *get_args(annotation))
    value = "" if secret else f"={mistake['input']}"
    return f"{variable}{value}{place}: {mistake['msg'].removeprefix('Value error, ')}"
