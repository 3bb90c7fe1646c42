"""The contents of the images, and the files that must not be in them."""

import pytest

import esd
from tests.e2e.compose import docker, inspect

pytestmark = pytest.mark.timeout(900)  # the first test builds them

SERVICE, WORKER = "esd-service:e2e", "esd-worker:e2e"
MEGABYTE = 10**6


def has(image: str, module: str) -> bool:
    code = f"import importlib.util; print(importlib.util.find_spec({module!r}) is not None)"
    return docker("run", "--rm", image, "python3", "-c", code).strip() == "True"


def test_the_service_image_is_small_and_has_no_torch(images) -> None:
    assert inspect(SERVICE)["Size"] < 480 * MEGABYTE  # of which pyarrow has 170, and obstore 16
    assert not has(SERVICE, "torch")
    assert has(WORKER, "torch")


def test_images_have_no_tools_to_install_or_build(images) -> None:
    for image in (SERVICE, WORKER):
        assert not has(image, "pip")
        for tool in ("gcc", "make", "cmake", "curl"):
            assert docker("run", "--rm", image, "sh", "-c", f"command -v {tool} || echo none").strip() == "none"


def test_images_say_what_they_are(images) -> None:
    for image in (SERVICE, WORKER):
        config = inspect(image)["Config"]
        assert config["User"] == "10001:10001"
        assert config["Labels"]["org.opencontainers.image.title"] == image.partition(":")[0]
        assert config["Labels"]["org.opencontainers.image.version"] == "e2e"
        assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_the_command_is_there(images) -> None:
    assert "Embedding sample dispatch" in docker("run", "--rm", SERVICE)
    assert docker("run", "--rm", SERVICE, "esd", "--version").strip() == f"esd {esd.__version__}"
