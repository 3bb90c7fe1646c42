"""The chart has the alerts and the dashboard of deploy/, and its metrics have the names that they ask for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import helm_python
import pytest
import yaml

from tests.support.chart import CHART, VALUES, Object, find, pods, render

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    return render(VALUES["monitoring"])


def test_nothing_of_an_operator_is_made_unless_it_is_asked_for() -> None:
    assert not [each for each in render({}) if "monitoring" in each["apiVersion"]]


@pytest.mark.parametrize("file", ["recording", "alerts"])
def test_rules_are_those_that_compose_has(file: str, objects: list[Object], tmp_path: Path) -> None:
    rules = find(objects, "PrometheusRule", f"esd-{file}")
    assert rules["spec"] == yaml.safe_load((DEPLOY / "prometheus" / f"{file}.yml").read_text())
    assert rules["metadata"]["labels"]["release"] == "monitoring"
    written = tmp_path / "rules.yml"
    written.write_text(yaml.safe_dump(rules["spec"]))
    subprocess.run(["promtool", "check", "rules", written], check=True, capture_output=True)


def test_the_dashboard_is_the_one_of_grafana(objects: list[Object]) -> None:
    dashboard = find(objects, "ConfigMap", "esd-dashboard")
    assert json.loads(dashboard["data"]["esd.json"]) == json.loads(
        (DEPLOY / "grafana" / "dashboards" / "esd.json").read_text()
    )
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_every_service_is_scraped_under_the_job_that_rules_name(objects: list[Object]) -> None:
    monitor = find(objects, "ServiceMonitor", "esd")
    service = find(objects, "Service", "esd-metrics")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] == service["spec"]["ports"][0]["name"] == "metrics"
    (relabeling,) = endpoint["relabelings"]
    assert relabeling["targetLabel"] == "job"
    jobs = set()
    for each in objects:
        if each["kind"] in {"StatefulSet", "Deployment"}:
            labels = each["spec"]["template"]["metadata"]["labels"]
            assert service["spec"]["selector"].items() <= labels.items()
            jobs.add(labels["app.kubernetes.io/component"])
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    assert jobs == {each["job_name"] for each in scraped}
    for workload, pod in pods(objects).items():
        names = [port["name"] for port in pod["containers"][0].get("ports", [])]
        assert ("metrics" in names) is not workload.startswith("esd-driver")


def test_a_package_of_the_chart_has_the_files_that_it_links(tmp_path: Path, objects: list[Object]) -> None:
    package = Path(helm_python.package(CHART, destination=tmp_path, version="1.2.3", app_version="1.2.3"))
    with helm_python.Chart.load(package) as chart:
        assert chart.metadata["appVersion"] == "1.2.3"
        assert not [each["name"] for each in chart.files if each["name"].startswith("ci/")]
        rendered = chart.render(VALUES["monitoring"], name="esd", namespace="training")
    packed = yaml.safe_load_all(rendered["esd/templates/monitoring.yaml"])
    assert [each["spec"] for each in packed if each and each["kind"] == "PrometheusRule"] == [
        each["spec"] for each in objects if each["kind"] == "PrometheusRule"
    ]
    assert "esd-worker:1.2.3" in rendered["esd/templates/workers.yaml"]
