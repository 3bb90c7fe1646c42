"""Calls of the public client in a process of its own: its protobuf module has the names of ours.

`python -m tests.support.triton_calls KIND ADDRESS REQUEST`: writes the metadata, the scores of a request and the error
of a wrong one, as JSON. KIND is http or grpc; REQUEST has TLS files, a token, inputs.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import numpy as np


def client(kind: str, address: str, tls: dict[str, str]) -> Any:
    module = import_module(f"tritonclient.{kind}")
    if not tls:
        return module.InferenceServerClient(address)
    if kind == "http":
        options = {"ca_certs": tls["ca"], "certfile": tls.get("certificate"), "keyfile": tls.get("key")}
        return module.InferenceServerClient(address, ssl=True, ssl_options=options)
    return module.InferenceServerClient(
        address, ssl=True, root_certificates=tls["ca"], private_key=tls.get("key"),
        certificate_chain=tls.get("certificate"),
    )  # fmt: skip


def tensor(kind: str, binary: bool, name: str, datatype: str, values: Any) -> Any:
    module = import_module(f"tritonclient.{kind}")
    dtype = {"UINT64": np.uint64, "UINT32": np.uint32, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_}
    array = np.array([v.encode() for v in values] if datatype == "BYTES" else values, dtype[datatype])
    made = module.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, **({"binary_data": binary} if kind == "http" else {}))
    return made


def main(kind: str, address: str, request: dict[str, Any]) -> dict[str, Any]:
    calls = client(kind, address, request.get("tls", {}))
    headers = {"authorization": f"Bearer {request['token']}"} if "token" in request else None
    inputs = [tensor(kind, request.get("binary", True), *each) for each in request["inputs"]]
    found: dict[str, Any] = {
        "live": calls.is_server_live(headers=headers),
        "ready": calls.is_server_ready(headers=headers),
        "model_ready": calls.is_model_ready("shop", headers=headers),
    }
    metadata = calls.get_model_metadata("shop", headers=headers, **({"as_json": True} if kind == "grpc" else {}))
    found["inputs"] = [each["name"] for each in metadata["inputs"]]
    answer = calls.infer("shop", inputs, request_id="seven", headers=headers)
    found["scores"] = answer.as_numpy("clicked").tolist()
    response = answer.get_response(**({"as_json": True} if kind == "grpc" else {}))
    found["id"] = response["id"]
    try:
        calls.infer("shop", inputs[:-1], headers=headers)
    except import_module("tritonclient.utils").InferenceServerException as error:
        found["error"] = error.message()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))))
