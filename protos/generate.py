"""Generates the Python code of the contract: `python -m esd.protos.generate [folder]`, by default in place."""

import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent


def generate(output: Path) -> None:
    """Writes `esd/protos/*_pb2.py`, `*_pb2.pyi` and `*_pb2_grpc.py` below `output`."""
    sources = sorted(f"esd/protos/{path.name}" for path in (ROOT / "protos").glob("*.proto"))
    well_known = resources.files("grpc_tools") / "_proto"
    status = protoc.main(
        [
            "protoc",
            f"--proto_path=esd/protos={ROOT / 'protos'}",
            f"--proto_path={well_known}",
            f"--python_out={output}",
            f"--pyi_out={output}",
            f"--grpc_python_out={output}",
            *sources,
        ]
    )
    if status != 0:
        raise SystemExit(status)


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
