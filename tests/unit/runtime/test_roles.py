"""Every call of every service has its roles, in one table; names of certificates and tokens map to roles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from esd.protos import dispatcher_pb2, inference_pb2, ps_pb2, worker_pb2
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.call_limits import is_health
from esd.services.runtime.roles import ANYBODY, PARTS_OF_WORKERS, ROLES_BY_RPC, Role, RolesByName, Token, read_tokens

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
FILES = (dispatcher_pb2, inference_pb2, ps_pb2, worker_pb2, health_pb2, reflection_pb2)
RPCS = {
    f"/{service.full_name}/{method.name}"
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def of(role: Role) -> set[str]:
    """The calls that a role may make, health and reflection apart, by their short names."""
    return {rpc.rpartition("/")[2] for rpc, roles in ROLES_BY_RPC.items() if role in roles and rpc.startswith("/esd.")}


def test_every_call_has_its_roles_and_no_other_is_named() -> None:
    assert set(ROLES_BY_RPC) == RPCS
    assert all(ROLES_BY_RPC.values()), "a call that nobody may make"


def test_what_a_worker_may_not_do() -> None:
    assert not of(Role.WORKER) & {
        "BeginEpoch", "Restore", "Commit", "Save", "GetCheckpoint", "AppendSamples", "ReadSamples", "TrimSamples",
        "Scan", "GetDense", "Lookup", "CreateJob", "CancelJob", "Submit", "RecordEvaluations", "DescribeJob",
        "DescribePage", "WatchPlans", "DescribeServer",
    }  # fmt: skip
    assert {"dense"} == PARTS_OF_WORKERS


def test_what_the_dispatcher_alone_may_do() -> None:
    for rpc in ("BeginEpoch", "Restore", "Commit", "Save", "AppendSamples", "ReadSamples", "TrimSamples"):
        assert ROLES_BY_RPC[f"/esd.v1.ParameterServer/{rpc}"] == {Role.DISPATCHER}


def test_what_people_may_do() -> None:
    assert of(Role.OBSERVER) == {"DescribeJob", "DescribePage", "WatchPlans", "DescribeServer", "DescribeWorker"}
    assert of(Role.OPERATOR) - of(Role.DRIVER) == set()
    assert of(Role.DRIVER) - of(Role.OPERATOR) == {"CreateJob", "Submit", "RecordEvaluations"}
    people, training = of(Role.DRIVER) | of(Role.OPERATOR), of(Role.WORKER) | of(Role.DISPATCHER)
    assert people & training == {"GetCheckpoint"}, (
        "nobody who trains can be taken for a person, nor the other way round"
    )


def test_a_scorer_may_ask_for_scores_and_change_nothing() -> None:
    own = {rpc for rpc, roles in ROLES_BY_RPC.items() if Role.SCORER in roles and roles != ANYBODY}
    assert {rpc.rpartition("/")[2] for rpc in own} == {"ModelInfer", "ModelMetadata", "ServerMetadata"}


def test_health_and_nothing_else_is_anybodys() -> None:
    of_any_role = {
        rpc for rpc in RPCS if "reflection" in rpc or rpc.endswith(("ServerLive", "ServerReady", "ModelReady"))
    }
    assert {rpc for rpc, roles in ROLES_BY_RPC.items() if roles == ANYBODY} - of_any_role == {
        rpc for rpc in RPCS if is_health(rpc)
    }


def test_the_documented_table_is_the_one_in_force() -> None:
    _, below = PAGE.split(f"\n| call | {' | '.join(Role)} |\n")
    documented = []
    for line in below.split("\n\n")[0].splitlines()[1:]:
        calls, *columns = (cell.strip() for cell in line.strip("|").split("|"))
        assert set(columns) <= {"yes", ""}
        roles = {role for role, may in zip(Role, columns, strict=True) if may}
        documented += [(rpc, roles) for rpc in re.findall(r"`([A-Z]\w+)`", calls)]
    assert sorted(documented) == sorted((rpc.rpartition("/")[2], set(roles)) for rpc, roles in ROLES_BY_RPC.items())


@pytest.mark.parametrize(
    ("listed", "names", "roles"),
    [
        ("*", ["worker-edge-1", "worker", "10.0.0.7"], {Role.WORKER}),
        ("*", ["ann", "client", "observer"], {Role.DRIVER, Role.OBSERVER}),
        ("*", ["ps_server", "localhost", "127.0.0.1"], set()),
        ("worker, client", ["client"], {Role.DRIVER}),
        ("worker,client", ["dispatcher"], set()),
        ("edge-1=worker, ann=operator", ["ann"], {Role.OPERATOR}),
        ("edge-1=worker", ["edge-2"], set()),
        ("edge-1=client", ["edge-1"], {Role.DRIVER}),
        ("*=observer,edge-1=worker", ["anyone"], {Role.OBSERVER}),
        ("*=observer,edge-1=worker", ["edge-1"], {Role.OBSERVER, Role.WORKER}),
        ("worker=observer, *", ["worker"], {Role.OBSERVER}),
        ("*, worker=observer", ["worker"], {Role.OBSERVER}),
    ],
)
def test_roles_by_name(listed: str, names: list[str], roles: set[Role]) -> None:
    assert RolesByName(listed).of(names) == roles


@pytest.mark.parametrize("entry", ["edge-1", "edge-1=", "edge-1=boss", "=worker", "*="])
def test_an_entry_without_a_role_is_named(entry: str) -> None:
    with pytest.raises(
        InvalidArgument, match=rf"'{re.escape(entry)}' names no role; write NAME=ROLE, with one of worker,"
    ):
        RolesByName(f"worker, {entry}")


def test_one_token_is_for_everything() -> None:
    assert read_tokens("sesame\n") == (Token("sesame", None, "the token"),)


def test_tokens_of_roles() -> None:
    tokens = read_tokens("# ours\nworker  one\n\nworker two\ndriver three\n")
    assert [(token.role, token.secret) for token in tokens] == [
        (Role.WORKER, "one"), (Role.WORKER, "two"), (Role.DRIVER, "three"),
    ]  # fmt: skip
    assert len({token.name for token in tokens}) == 3, "each is another caller"
    assert "one" not in repr(tokens).replace("None", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("# nothing\n\n", "the file is empty"),
        ("worker secret-1\nsecret-2\n", "line 2 is not a role and a token"),
        ("secret-1\nsecret-2\n", "line 1 is not a role and a token"),
        ("secret-1 secret-2\n", "line 1 is not a role and a token"),
        ("client secret-1 secret-2\n", "line 1 is not a role and a token"),
        ("worker secret-1\ndriver secret-1\n", "two lines have the same token"),
        ("secret-1ö\n", "the token in line 1 has characters other than"),
        ("\ufeffsecret-1\n", "the token in line 1 has characters other than"),
        ("# wörter\nworker secret-1\ndriver secret-\x012\n", "the token in line 3 has characters other than"),
    ],
)
def test_a_bad_file_of_tokens_is_refused_without_giving_one_away(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_tokens(text)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)
