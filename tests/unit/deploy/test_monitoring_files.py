"""Prometheus and Grafana files: valid, in step with the code, and complete."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from deploy.grafana import dashboard
from esd.services.runtime.metrics import REGISTRY

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = (PROMETHEUS / "recording.yml").read_text() + (PROMETHEUS / "alerts.yml").read_text()


def promtool(*arguments: object) -> None:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_configuration() -> None:
    promtool("check", "config", PROMETHEUS / "prometheus.yml")


def test_alerts_fire_when_they_should_and_not_otherwise() -> None:
    promtool("test", "rules", Path(__file__).parent / "alerts.test.yml")


def test_every_alert_is_tested_and_says_what_to_do() -> None:
    tested = (Path(__file__).parent / "alerts.test.yml").read_text()
    blocks = RULES.split("- alert: ")[1:]
    assert len(blocks) >= 5
    for block in blocks:
        name = block.split("\n", 1)[0]
        assert "summary:" in block, name
        assert "action:" in block, name
        assert f"alertname: {name}," in tested, "stays silent"
        assert f'alertname="{name}"' in tested, "fires"


def test_the_dashboard_file_is_what_the_code_writes() -> None:
    assert dashboard.FILE.read_text() == dashboard.text(), "run `python3 -m deploy.grafana.dashboard`"


def test_panels_do_not_overlap() -> None:
    taken = set()
    for panel in dashboard.dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_every_metric_is_on_the_dashboard_or_in_a_rule() -> None:
    shown = json.dumps(dashboard.dashboard()) + RULES
    for family in REGISTRY.collect():
        if not family.name.startswith("process_"):
            assert re.search(rf"\b{family.name}(_total|_sum|_count|_bucket)?\b", shown), family.name


def test_rules_and_panels_use_metrics_that_exist() -> None:
    known = {family.name for family in REGISTRY.collect()}
    recorded = set(re.findall(r"record: (\S+)", RULES))
    queries = [expr for row in dashboard.ROWS.values() for panel in row for expr, _ in panel.queries]
    for name in re.findall(r"\b(?:esd|grpc)[_:][a-z0-9_:]+", " ".join(queries) + re.sub(r"#.*|record:.*", "", RULES)):
        assert name in recorded or re.sub(r"_(total|sum|count|bucket)$", "", name) in known, name
