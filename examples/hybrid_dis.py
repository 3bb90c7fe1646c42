"""Assigns samples to workers with the dispatcher's HybridDis, by nothing but protos/, grpcio and numpy.

    python3 -m examples.hybrid_dis 127.0.0.1:50051

With TLS and a token:

    python3 -m examples.hybrid_dis dispatcher:50051 --ca authority.crt --token-file token
"""

from __future__ import annotations

import argparse
from pathlib import Path

import grpc
import numpy as np

from esd.protos import dispatcher_pb2, dispatcher_pb2_grpc

SAMPLES, WORKERS = 1024, 4
LINK_COSTS = np.array([1, 1, 10, 10], np.float32)  # workers 2 and 3 have links ten times slower
MISSES = 26  # most rows that a sample lacks in a worker's cache


def main() -> None:
    """Asks for one assignment and compares it with a random one."""
    parser = argparse.ArgumentParser(description="Calls HybridDis with a made-up cost matrix.")
    parser.add_argument("dispatcher", help="host:port")
    parser.add_argument("--ca", type=Path, help="certificate authority of a dispatcher with TLS")
    parser.add_argument("--token-file", type=Path, help="file of the token that the dispatcher asks for")
    options = parser.parse_args()

    random = np.random.default_rng(0)
    # The time that worker j needs to move the rows that it lacks for sample i over its link.
    costs = (random.integers(0, MISSES + 1, (SAMPLES, WORKERS)) * LINK_COSTS).astype("<f4")
    capacities = np.full(WORKERS, SAMPLES // WORKERS, "<i4")

    with connect(options.dispatcher, options.ca) as channel:
        stub = dispatcher_pb2_grpc.DispatcherStub(channel)  # type: ignore[no-untyped-call]
        request = dispatcher_pb2.HybridDisRequest(
            samples=SAMPLES,
            workers=WORKERS,
            float_costs=costs.tobytes(),
            capacities=capacities.tobytes(),
            alpha=0.5,  # half of the places by the exact solver, half greedily
        )
        answer = stub.HybridDis(
            iter([request]),  # costs of more than a message would follow in others
            metadata=[("authorization", f"Bearer {options.token_file.read_text().strip()}")]
            if options.token_file
            else None,
            timeout=30,
        )
    assignment = np.frombuffer(answer.assignment, "<i4")

    anywhere = costs[np.arange(SAMPLES), random.permutation(np.repeat(np.arange(WORKERS), SAMPLES // WORKERS))].sum()
    print(f"cost {answer.total_cost:.0f}, at random {anywhere:.0f}: {anywhere / answer.total_cost:.2f} times as much")
    print(f"samples per worker: {np.bincount(assignment, minlength=WORKERS).tolist()}")
    print(f"solver {answer.solver}, {1000 * answer.seconds:.2f} ms")


def connect(address: str, ca: Path | None) -> grpc.Channel:
    """Returns a channel, encrypted if there is an authority to check the dispatcher's certificate against."""
    if ca is None:
        return grpc.insecure_channel(address)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(ca.read_bytes()))


if __name__ == "__main__":
    main()
