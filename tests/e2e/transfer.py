"""How fast bytes pass from one container to another over the network of the rows."""

from __future__ import annotations

import subprocess

from tests.e2e.compose import Project, docker, inspect

BYTES = 4_000_000  # enough that what the filter lets through at once does not count

_RECEIVE = f"""
import socket, time
with socket.create_server(("0.0.0.0", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    received, started = 0, time.monotonic()
    while data := connection.recv(1 << 16):
        received += len(data)
    assert received == {BYTES}
    print(8e-6 * received / (time.monotonic() - started))
"""

_SEND = f"""
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    connection.sendall(bytes({BYTES}))
"""


def megabits_per_second(project: Project, sender: str, receiver: str) -> float:
    """Sends a few megabytes over TCP."""
    address = inspect(receiver)["NetworkSettings"]["Networks"][f"{project.name}_link"]["IPAddress"]
    receiving = subprocess.Popen(
        ["docker", "exec", receiver, "python3", "-c", _RECEIVE], stdout=subprocess.PIPE, text=True
    )
    with receiving:
        port = receiving.stdout.readline().strip()
        docker("exec", sender, "python3", "-c", _SEND, address, port)
        return float(receiving.stdout.readline())
