"""The contract and its generated code: in step with each other, with the dependencies, and documented."""

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from esd.protos import ps_pb2_grpc
from esd.protos.generate import ROOT, generate

PROTOS = sorted((ROOT / "protos").glob("*.proto"))
MESSAGE, SERVICE = 4, 6  # field numbers of FileDescriptorProto, of which source paths are made
NESTED, FIELD, METHOD = 3, 2, 2  # of DescriptorProto and ServiceDescriptorProto


def test_generated_code_equals_what_the_generator_makes_now(tmp_path: Path) -> None:
    generate(tmp_path)
    made = sorted(path.name for path in (tmp_path / "esd/protos").iterdir())
    committed = sorted(path.name for path in (ROOT / "protos").glob("*_pb2*"))
    assert made == committed
    for name in made:
        assert (tmp_path / "esd/protos" / name).read_text() == (ROOT / "protos" / name).read_text(), (
            f"protos/{name} is not what `make protos` makes"
        )


def test_floors_of_the_dependencies_are_the_generating_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    stated = {match[1]: match[2] for text in requirements if (match := re.match(r"([\w-]+)[>=]=([\d.]+)", text))}
    generated = (ROOT / "protos" / "ps_pb2.py").read_text()
    assert stated["protobuf"] == re.findall(r"Protobuf Python Version: (\S+)", generated)[0]
    for package in ("grpcio", "grpcio-health-checking", "grpcio-reflection", "grpcio-tools"):
        assert stated[package] == ps_pb2_grpc.GRPC_GENERATED_VERSION
    assert version("grpcio-tools") == ps_pb2_grpc.GRPC_GENERATED_VERSION


@pytest.fixture(scope="module")
def contract(tmp_path_factory: pytest.TempPathFactory) -> FileDescriptorSet:
    """All .proto files with their comments."""
    path = tmp_path_factory.mktemp("contract") / "descriptors"
    files = [f"esd/protos/{proto.name}" for proto in PROTOS]
    arguments = ["protoc", f"--proto_path={ROOT}", "--include_source_info", f"--descriptor_set_out={path}", *files]
    assert protoc.main(arguments) == 0
    return FileDescriptorSet.FromString(path.read_bytes())


def comments_of(file: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    """Returns the comments of a file by their source paths."""
    return {
        tuple(location.path): location.leading_comments + location.trailing_comments
        for location in file.source_code_info.location
    }


def messages_of(
    messages: list[DescriptorProto], path: tuple[int, ...]
) -> Iterator[tuple[DescriptorProto, tuple[int, ...]]]:
    """All messages of a list and the messages nested in them, with their source paths."""
    for number, message in enumerate(messages):
        yield message, (*path, number)
        yield from messages_of(list(message.nested_type), (*path, number, NESTED))


def test_every_rpc_is_documented(contract: FileDescriptorSet) -> None:
    undocumented = [
        f"{service.name}.{method.name}"
        for file in contract.file
        for s, service in enumerate(file.service)
        for m, method in enumerate(service.method)
        if not comments_of(file).get((SERVICE, s, METHOD, m))
    ]
    assert undocumented == []


def test_every_message_is_documented(contract: FileDescriptorSet) -> None:
    """And so every field is: by its own comment, or, where its name says it all, by its message's."""
    undocumented = [
        message.name
        for file in contract.file
        for message, path in messages_of(list(file.message_type), (MESSAGE,))
        if not comments_of(file).get(path) and not message.options.map_entry  # which protoc makes
    ]
    assert undocumented == []


def test_every_array_states_its_type_and_shape(contract: FileDescriptorSet) -> None:
    array = re.compile(r"(u?int\d+|float32) \[\w+(, \w+)?\]")
    unstated = [
        f"{message.name}.{field.name}"
        for file in contract.file
        for message, path in messages_of(list(file.message_type), (MESSAGE,))
        for f, field in enumerate(message.field)
        if field.type == FieldDescriptorProto.TYPE_BYTES
        and not array.search(comments_of(file).get((*path, FIELD, f), ""))
    ]
    assert unstated == []
