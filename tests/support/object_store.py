"""A real server that speaks the protocol of S3, and buckets in it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from itertools import count
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

REGION = "us-east-1"
_NUMBERS = count()


class S3Server:
    """A running server.

    It answers one request at a time: moto looks at the condition of a write before it writes, S3 does both in one.

    Attributes:
        address: its URL.
    """

    def __init__(self) -> None:
        self._server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app))
        self._thread = threading.Thread()
        self.address = f"http://127.0.0.1:{self._server.port}"
        self.resume()

    def pause(self) -> None:
        """Answers no request any more; their senders wait until they give up, or until it goes on."""
        self._server.shutdown()
        self._thread.join()

    def resume(self) -> None:
        """Answers requests again."""
        # The method of werkzeug's own class would close the socket at the end.
        self._thread = threading.Thread(target=HTTPServer.serve_forever, args=(self._server,), name="s3")
        self._thread.start()

    def close(self) -> None:
        """Ends it."""
        self.pause()
        self._server.server_close()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Serves until the block ends; the environment names the server and its credentials meanwhile."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = S3Server()
    variables = {
        "AWS_ENDPOINT_URL": server.address,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "an identity",
        "AWS_SECRET_ACCESS_KEY": "a secret",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        try:
            yield server
        finally:
            server.close()


def s3_client() -> Any:
    """A client of the server, of another make than the one that is tested."""
    return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name=REGION)


def new_bucket() -> str:
    """Makes a bucket in the server; returns its name."""
    name = f"bucket-{next(_NUMBERS)}"
    s3_client().create_bucket(Bucket=name)
    return name
