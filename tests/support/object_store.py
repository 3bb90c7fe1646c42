"""A real server that speaks the protocol of S3, and buckets in it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

REGION = "us-east-1"
_NUMBERS = count()


@contextmanager
def s3_server() -> Iterator[str]:
    """Serves until the block ends, and yields the address; the environment names it and its credentials meanwhile.

    It answers one request at a time: moto looks at the condition of a write before it writes, S3 does both in one.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app))
    address = f"http://127.0.0.1:{server.port}"
    variables = {
        "AWS_ENDPOINT_URL": address,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "an identity",
        "AWS_SECRET_ACCESS_KEY": "a secret",
    }
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        try:
            yield address
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def s3_client() -> Any:
    """A client of the server, of another make than the one that is tested."""
    return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name=REGION)


def new_bucket() -> str:
    """Makes a bucket in the server; returns its name."""
    name = f"bucket-{next(_NUMBERS)}"
    s3_client().create_bucket(Bucket=name)
    return name
