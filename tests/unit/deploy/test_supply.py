"""All installed and executed software is named by hashes and digests, in every place alike."""

from __future__ import annotations

import hashlib
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from esd.cluster.config import Cluster

ROOT = Path(__file__).parents[3]
LOCK = (ROOT / "requirements.lock").read_text()
COMPOSE_FILES = [ROOT / "docker-compose.yml", *sorted((ROOT / "deploy").glob("*.yml"))]
DIGEST = r"[a-z][\w./-]*:[\w.-]+@sha256:[0-9a-f]{64}"


@pytest.fixture(scope="module")
def wheels() -> ModuleType:
    """deploy/wheels, which has no ending that Python imports."""
    loader = SourceFileLoader("wheels", str(ROOT / "deploy" / "wheels"))
    module = module_from_spec(spec_from_loader("wheels", loader))
    loader.exec_module(module)
    return module


def test_every_locked_package_has_one_version_and_hashes() -> None:
    entries = re.split(r"\n(?=\S)", LOCK)
    packages = [entry for entry in entries if not entry.startswith("#")]
    assert len(packages) > 70
    for entry in packages:
        assert re.match(r"[a-z0-9-]+==\S+ (; \S.*)?\\\n", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_setup_installs_nothing_without_a_hash_but_torch() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installed = re.findall(r"pip install (.*)", makefile)
    assert [line for line in installed if "--require-hashes" in line and line.endswith("requirements.lock")]
    assert len([line for line in installed if "--requirement" in line]) == 2
    unhashed = re.findall(r"^([a-z-]+)", (ROOT / "requirements-torch.lock").read_text(), re.MULTILINE)
    assert unhashed == ["torch", "cuda-bindings", "nvidia-cuda-nvrtc"]


def test_a_wheel_with_another_hash_stops_the_collection(
    wheels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = (tmp_path / f"Some_Project-1.{number}-py3-none-any.whl" for number in range(2))
    right.write_bytes(b"tested")
    wrong.write_bytes(b"another")
    lock = tmp_path / "requirements.lock"
    hashed = hashlib.sha256(b"tested").hexdigest()
    other = hashlib.sha256(b"another").hexdigest()
    lock.write_text(f"some-project==1.0 \\\n    --hash=sha256:{hashed}\nsomething==1.0 \\\n    --hash=sha256:{other}\n")
    monkeypatch.setattr(wheels, "LOCK", lock)
    wheels.check(right)
    with pytest.raises(SystemExit, match=r"Some_Project-1\.1.*requirements\.lock does not contain"):
        wheels.check(wrong)
    assert not wrong.exists()


def test_images_are_named_by_tag_and_digest() -> None:
    for file in COMPOSE_FILES:
        for name, image in re.findall(r"\$\{(\w+_IMAGE):-([^}]*)\}", file.read_text()):
            assert re.fullmatch(DIGEST, image), (file, name)
        for service in yaml.safe_load(file.read_text())["services"].values():
            assert service.get("image", "esd-").startswith(("esd-", "${")), file
    assert re.fullmatch(DIGEST, Cluster.model_fields["redis_image"].default)


def test_the_same_image_has_one_digest_everywhere() -> None:
    files = [*COMPOSE_FILES, *map(ROOT.joinpath, (".env.example", "deploy/Dockerfile", "deploy/cluster.toml"))]
    named = {image for file in files for image in re.findall(DIGEST, file.read_text())}
    named.add(Cluster.model_fields["redis_image"].default)
    assert len(named) == len({image.partition(":")[0] for image in named}) == 4


def test_bases_in_the_dockerfile_are_variables_or_stages() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert set(bases) <= stages | {"${BASE_IMAGE}", "${BUILDER_IMAGE}"}
    assert re.findall(r"^ARG BASE_IMAGE=(\S+)$", text, re.MULTILINE)[0] in (ROOT / "docker-compose.yml").read_text()


def test_every_stage_that_downloads_knows_the_index() -> None:
    stages = re.split(r"^FROM ", (ROOT / "deploy" / "Dockerfile").read_text(), flags=re.MULTILINE)
    downloading = [stage for stage in stages if "deploy/wheels --missing" in stage and "--missing esd" not in stage]
    assert len(downloading) == 3
    for stage in downloading:
        assert {"ARG PIP_INDEX_URL", "ARG PIP_TRUSTED_HOST"} <= set(stage.splitlines()), stage


def test_grafana_has_no_login_that_everybody_knows() -> None:
    settings = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]["environment"]
    assert settings["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert settings["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


PUBLISHING = {
    "publish.yml": {"publish": ["id-token", "attestations"]},
    "site.yml": {"push": ["contents"]},
}  # the rights of the jobs that may write, by workflow


def test_actions_of_workflows_are_named_by_digests() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    used = [line for path in workflows for line in re.findall(r"uses: (.*)", path.read_text())]
    assert len(used) > 8
    assert [action for action in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+(\.\d+)+", action)] == []
    assert len({action.partition("@")[0] for action in used}) == len(set(used)), "one action, two versions"


def test_tools_of_workflows_have_versions() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    run = [line for path in workflows for line in re.findall(r"pipx run (?:--spec )?(\S+)", path.read_text())]
    assert [tool for tool in run if "==" not in tool] == []


def test_only_the_jobs_that_publish_may_write_anything() -> None:
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        workflow = yaml.safe_load(path.read_text())
        assert "write" not in workflow["permissions"].values()
        writes = {
            name: [right for right, kind in job.get("permissions", {}).items() if kind == "write"]
            for name, job in workflow["jobs"].items()
        }
        assert {name: rights for name, rights in writes.items() if rights} == PUBLISHING.get(path.name, {})
