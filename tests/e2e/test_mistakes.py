"""The view of a user after a mistake: a container that ends, and a message that names the knob."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.compose import docker, inspect, log_of, wait_until

pytestmark = pytest.mark.timeout(600)

CONFIGURATION, FAILURE = 2, 1


def override(directory: Path, text: str) -> Path:
    file = directory / "override.yml"
    file.write_text(text)
    return file


def environment(directory: Path, service: str, **variables: str) -> Path:
    lines = "".join(f"      {name}: {value!r}\n" for name, value in variables.items())
    return override(directory, f"services:\n  {service}:\n    environment:\n{lines}")


def restarts(container: str) -> int:
    return inspect(container)["RestartCount"]


def ends_with(project, service: str, message: str, code: int) -> None:
    """The container ends, is tried again, and says why each time."""
    (container,) = project.containers(service)
    wait_until(lambda: restarts(container) > 0, 180)
    assert re.search(message, project.logs(service)), project.logs(service)
    docker("update", "--restart", "no", container)
    assert int(docker("wait", container)) == code


def test_a_misspelt_variable_is_named_with_what_was_meant(new_project, tmp_path) -> None:
    misspelt = environment(tmp_path, "dispatcher", ESD_DISPATCHER_LEASE_SECOND="7")
    project = new_project(files=[misspelt])
    project.must("up", "--detach", "--no-deps", "dispatcher")
    ends_with(
        project, "dispatcher", "ESD_DISPATCHER_LEASE_SECOND.*did you mean 'ESD_DISPATCHER_LEASE_SECONDS'", CONFIGURATION
    )


def test_a_missing_certificate_is_named(new_project, tmp_path) -> None:
    project = new_project(
        files=[environment(tmp_path, "dispatcher", ESD_DISPATCHER_TLS_CERTIFICATE="/certs/absent.crt")]
    )
    project.must("up", "--detach", "--no-deps", "dispatcher")
    ends_with(project, "dispatcher", "ESD_DISPATCHER_TLS_CERTIFICATE.*/certs/absent.crt", CONFIGURATION)


def test_a_wrong_password_of_redis_is_named_and_not_shown(new_project, tmp_path) -> None:
    for name, password in (("right", "secret-4712"), ("wrong", "guess-4711")):
        (tmp_path / name).write_text(password)
        (tmp_path / name).chmod(0o444)
    wrong = override(
        tmp_path,
        f"""
services:
  ps_server:
    volumes: ["{tmp_path}/wrong:/wrong:ro"]
    environment:
      ESD_PS_STORE_PASSWORD_FILE: /wrong
""",
    )
    project = new_project(files=[wrong], variables={"REDIS_PASSWORD_FILE": str(tmp_path / "right")})
    project.compose("up", "--detach", "ps_server")  # compose 2 waits for the health that never comes, and fails
    ends_with(project, "ps_server", "Redis at redis:6379 refuses our user or password", FAILURE)
    shown = project.logs() + "".join(str(inspect(container)) for container in project.containers())
    assert not re.search("guess-4711|secret-4712", shown)


def test_too_few_links_are_counted(new_project) -> None:
    project = new_project(variables={"WORKERS": "3", "LINKS": "500m,50m"})
    project.must("up", "--detach", "--no-deps", "dispatcher", "worker")
    last = project.containers("worker")[2]
    wait_until(lambda: restarts(last) > 0, 180)
    assert "names 2 links, this is replica 3" in log_of(last)


def test_a_full_disk_of_redis_ends_the_run_with_the_reason(new_project, tmp_path) -> None:
    small = override(
        tmp_path,
        """
services:
  worker:
    environment:
      ESD_WORKER_RETRY_TIMEOUT: "3"
  dispatcher:
    environment:
      ESD_DISPATCHER_RECOVERY_SECONDS: "10"
    volumes: ["redis:/keep"] # a file system in memory is gone when nobody has it mounted
volumes:
  redis:
    driver_opts: {type: tmpfs, device: tmpfs, o: "size=4m,uid=999"}
""",
    )
    project = new_project(files=[small], variables={"WORKERS": "1", "TRAIN": "--data flights --dim 512"})
    project.must("up", "--detach", timeout=240)
    assert project.exit_of("driver", timeout=400) == FAILURE
    assert re.search("Short write while writing to the AOF file|No space left on device", project.logs("redis"))
    assert re.search("Redis at redis:6379 is (out of reach|full)|No space left", project.logs("worker")), project.logs()
    assert "job flights failed" in project.logs("dispatcher")
