"""Options that both ends of a connection must agree on."""

from pathlib import Path

from grpc._cython import cygrpc

from esd.services.runtime.channel import KEEPALIVE_OPTIONS, channel_options
from esd.services.runtime.server import server_options
from esd.services.runtime.settings import ServerSettings


class ToySettings(ServerSettings, env_prefix="ESD_TOY_"):
    """Defaults of every service."""


def test_grpc_knows_every_option() -> None:
    """It ignores unknown ones without a word: a misspelt ping interval ends idle streams after a minute."""
    library = Path(cygrpc.__file__).read_bytes()
    names = {name for name, _ in (*server_options(ToySettings()), *channel_options(2**20, "caller", "server"))}
    assert {name for name in names if name.encode() + b"\0" not in library} == set()


def test_servers_allow_more_pings_than_clients_send() -> None:
    allowed = dict(server_options(ToySettings()))["grpc.http2.min_ping_interval_without_data_ms"]
    assert allowed < dict(KEEPALIVE_OPTIONS)["grpc.keepalive_time_ms"]


def test_both_ends_have_the_same_limit_for_answers_and_requests_are_shorter() -> None:
    settings = ToySettings(max_message_bytes=2**21, max_request_bytes=2**20)
    server, client = dict(server_options(settings)), dict(channel_options(settings.max_message_bytes))
    assert server["grpc.max_send_message_length"] == client["grpc.max_receive_message_length"] == 2**21
    assert client["grpc.max_send_message_length"] == 2**21, "the server's error names its setting"
    assert server["grpc.max_receive_message_length"] == 2**20
