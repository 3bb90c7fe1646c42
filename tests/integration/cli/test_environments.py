"""Commands in environments as machines have them: odd variables, no IPv4, a full disk, low limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.command import esd_here

TRAINING = (
    "train", "--data", "synthetic:zipf?samples=400&fields=4&keys=500", "--workers", "2", "--batch", "10", "--dim", "4",
    "--cache-rows", "300", "--hidden", "8", "--shadows", "none", "--json",
)  # fmt: skip

# Variables that change nothing of a result.
ODD = {
    "HOME": "/nonexistent/home",
    "LANG": "C",
    "LC_ALL": "POSIX",
    "LC_NUMERIC": "de_DE.UTF-8",
    "PYTHONUTF8": "0",
    "PYTHONIOENCODING": "ascii",
    "PYTHONSTARTUP": "/nonexistent/startup.py",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONOPTIMIZE": "1",
    "PYTHONSAFEPATH": "1",
    "PYTHONWARNINGS": "error::UserWarning",
    "OMP_NUM_THREADS": "many",
    "MKL_NUM_THREADS": "-1",
    "CUDA_VISIBLE_DEVICES": "7",
    "CUBLAS_WORKSPACE_CONFIG": ":16:8",
    "GLOO_SOCKET_IFNAME": "lo",
    "GRPC_VERBOSITY": "error",
    "GRPC_TRACE": "none",
    "GRPC_POLL_STRATEGY": "poll",
    "GRPC_ENABLE_FORK_SUPPORT": "1",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "grpc_proxy": "http://127.0.0.1:9",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "COLUMNS": "20",
}

_OTHER_USER = 61_234  # which has no other processes

rooted = pytest.mark.skipif(
    subprocess.run(["unshare", "-n", "-m", "true"], check=False, capture_output=True).returncode != 0,
    reason="namespaces of one's own need root",
)


def esd_in(
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    before: str = "",
    namespaces: str = "",
    folder: Path | None = None,
    user: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the command after lines of a shell, in namespaces of its own if any are named.

    With a user it runs without the rights of root, but still reads and writes all files.
    """
    shell = f'{before}\nexec "$@"'
    command = ["bash", "-ec", shell, "esd", sys.executable, "-m", "esd.cli", *arguments]
    if user is not None and os.geteuid() == 0:
        kept = "-all,+dac_override,+dac_read_search"
        command = ["setpriv", f"--reuid={user}", f"--inh-caps={kept}", f"--ambient-caps={kept}", *command]
    return subprocess.run(
        ["unshare", *namespaces.split(), *command] if namespaces else command,
        env={name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"} | (variables or {}),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def figures(command: subprocess.CompletedProcess[str]) -> tuple[float, list[int]]:
    assert command.returncode == 0, command.stderr
    result = json.loads(command.stdout.splitlines()[-1])
    return result["loss"], result["operations"]["miss_pull"]


@pytest.fixture(scope="module")
def undisturbed() -> tuple[float, list[int]]:
    return figures(esd_here(*TRAINING))


def test_variables_that_are_not_ours_change_nothing(undisturbed: tuple[float, list[int]], tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 120) / ("ü" * 60)  # longer than the path of any socket
    deep.mkdir(parents=True)
    ended = esd_in(*TRAINING, variables=ODD | {"TMPDIR": str(deep)}, before="umask 077; exec <&-")
    assert figures(ended) == undisturbed
    assert any(line.startswith("live: http://127.0.0.1:") and line.endswith("/") for line in ended.stderr.splitlines())
    assert not list(deep.iterdir()), "logs of a run that ended well are removed"


@rooted
def test_a_machine_with_ipv6_only_an_unknown_name_and_no_shared_memory_trains(
    undisturbed: tuple[float, list[int]],
) -> None:
    machine = """
        ip link set lo up; ip addr del 127.0.0.1/8 dev lo; hostname no-such-machine
        mount -t tmpfs -o ro tmpfs /dev/shm; mount --bind /dev/null /etc/hosts; mount --bind /dev/null /etc/passwd
        unset HOME
    """
    ended = esd_in(*TRAINING, before=machine, namespaces="-n -m -u")
    assert figures(ended) == undisturbed
    assert "live: http://[::1]:" in ended.stderr


@rooted
def test_a_machine_without_a_loopback_address_is_refused_at_once() -> None:
    ended = esd_in(*TRAINING, namespaces="-n")
    assert ended.returncode == 1
    assert "needs a loopback address" in ended.stderr
    assert "is the interface lo up?" in ended.stderr


@rooted
def test_no_folder_for_logs_is_refused_by_the_name_of_the_option() -> None:
    # What the folders hold stays visible: the source tree may be in one.
    fixed = "for each in /tmp /var/tmp; do mount --bind $each $each; mount -o remount,ro,bind $each; done; cd /proc"
    ended = esd_in(*TRAINING, before=fixed, namespaces="-m", variables={"TMPDIR": "/tmp"})
    assert ended.returncode == 1
    assert "name one with --out, or set TMPDIR" in ended.stderr


def test_a_working_directory_that_was_removed_is_refused(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    root = Path(__file__).parents[3]
    ended = esd_in(*TRAINING, before='rmdir "$PWD"', folder=gone, variables={"PYTHONPATH": str(root)})
    assert (ended.returncode, ended.stderr.strip()) == (
        1,
        "esd: the working directory has been removed; change to one that exists",
    )


def test_too_few_threads_for_a_run_are_refused_before_it_starts() -> None:
    # The number of threads does not bind root.
    ended = esd_in(*TRAINING, before="ulimit -u 30", user=_OTHER_USER)
    assert ended.returncode == 1
    assert "needs at least 55 threads, and ulimit -u 30 allows 30 to all processes" in " ".join(ended.stderr.split())
    assert not ended.stderr.startswith("Traceback")


@pytest.mark.parametrize("limit", ["-n 16", "-v 600000"])
def test_an_end_for_want_of_files_or_memory_names_the_limit(limit: str) -> None:
    ended = esd_in(*TRAINING, before=f"ulimit {limit}")
    assert ended.returncode == 1
    assert "esd: " in ended.stderr
    assert f"limits of this process are low and may be the cause: ulimit {limit}" in " ".join(ended.stderr.split())
    assert not ended.stderr.startswith("Traceback")


def test_a_character_that_the_encoding_lacks_is_an_escape_that_keeps_a_proposed_schema(tmp_path: Path) -> None:
    (tmp_path / "käufe.csv").write_text("größe🙂,kauf\n1.5,0\n2.5,1\n")
    plain = esd_in("data", "inspect", str(tmp_path / "käufe.csv"), variables={"PYTHONIOENCODING": "utf-8"})
    ascii_only = esd_in("data", "inspect", str(tmp_path / "käufe.csv"), variables={"PYTHONIOENCODING": "ascii"})
    assert ascii_only.stdout.isascii()
    assert tomllib.loads(ascii_only.stdout) == tomllib.loads(plain.stdout)
    assert "größe🙂" in tomllib.loads(ascii_only.stdout)["dense"]
    assert (ascii_only.returncode, ascii_only.stderr) == (0, plain.stderr)


def test_a_width_of_no_columns_counts_as_not_given_and_colours_may_be_forced() -> None:
    simulated = ("simulate", *TRAINING[1:3], "--workers", "2", "--iterations", "3", "--cache-rows", "300")
    plain, narrow = esd_in(*simulated), esd_in(*simulated, variables={"COLUMNS": "0", "FORCE_COLOR": "1"})
    assert "\x1b[" not in plain.stdout
    assert "\x1b[" in narrow.stdout
    assert "hit ratio" in plain.stdout
    assert len(narrow.stdout.splitlines()) == len(plain.stdout.splitlines())
