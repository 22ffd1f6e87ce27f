"""The files in deploy/ name nothing that is not there: every metric with its labels, every alert that was asked for
(OBS-15 to OBS-22, OBS-24)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.observe import metrics
from perdure.worker import metrics as worker_metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "perdure.json"

KNOWN: dict[str, set[str]] = {series.name: set(series.labels) for series in metrics.ALL}
KNOWN |= {name: set(labels) for name, labels in worker_metrics.LABELS.items()}
KNOWN |= {name: set() for name in ("process_cpu_seconds_total", "process_resident_memory_bytes")}
ADDED = {"instance", "le"}
"""Labels that Prometheus adds, and that histograms have."""
_SUFFIX = re.compile(r"_(bucket|count|sum)$")
_WORDS = {
    "sum", "max", "avg", "by", "rate", "increase", "histogram_quantile", "absent", "unless", "or", "and", "on",
    "scalar",
}  # fmt: skip
_GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"\b([a-z_]\w*)\s*(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|=|!=|!~)\s*\"[^\"]*\"")


def used(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Metrics of a PromQL expression, each with the labels that are asked of it."""
    groups = {label.strip() for match in _GROUPING.finditer(expression) for label in match[1].split(",")} - {""}
    bare = re.sub(r"\[[^\]]*\]|\boffset\s+\w+", "", _GROUPING.sub("", expression))
    for name, matchers in _SELECTOR.findall(bare):
        if name not in _WORDS:
            asked = set(_MATCHER.findall(matchers))
            yield name, asked | groups


def name_of(used: str) -> str:
    return used if used in KNOWN else _SUFFIX.sub("", used)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


EXPRESSIONS = [(rule["alert"], rule["expr"]) for rule in rules()] + [
    (panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]
]


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS, ids=[f"{n}-{t}" for n, (t, _) in enumerate(EXPRESSIONS)])
def test_metrics_and_labels_exist(title: str, expression: str) -> None:
    found = list(used(expression))
    assert found
    for name, labels in found:
        assert name_of(name) in KNOWN, name
        assert labels <= KNOWN[name_of(name)] | ADDED, (name, labels)


def test_the_check_itself_sees_what_is_wrong() -> None:
    assert dict(used('sum by (a, le) (rate(x_bucket{b="1", c=~"$d"}[5m] offset 1h)) > 0.5 and on (a) y')) == {
        "x_bucket": {"a", "b", "c", "le"}, "y": {"a", "le"},
    }  # fmt: skip


def test_every_series_of_histograms_is_asked_by_bucket_sum_or_count() -> None:
    histograms = {series.name for series in metrics.HISTOGRAMS.values()} | {worker_metrics.REPLAY}
    for _, expression in EXPRESSIONS:
        assert not {name for name, _ in used(expression)} & histograms


def test_what_is_asked_for_has_an_alert() -> None:
    """OBS-15 to OBS-22."""
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in rules()}
    wanted = {
        "PerdureTurnsTimeOut": "critical",  # OBS-15
        "PerdureNonDeterminism": "critical",  # OBS-16
        "PerdureTransferQueueDeep": "warning",  # OBS-17
        "PerdureTimersLate": "warning",  # OBS-18
        "PerdureActivityRetries": "warning",  # OBS-19
        "PerdureLongHistories": "info",  # OBS-20
        "PerdureDatabaseAway": "critical",  # OBS-21
        "PerdureCompensationFailed": "critical",  # OBS-22
        "PerdureWorkflowsStuck": "warning",
        "PerdureBreakerOpen": "warning",
        "PerdureDuplicateStarts": "warning",  # OBS-14
        "PerdureJobsHandedOutOften": "warning",
        "PerdureWorkersSaturated": "warning",
        "PerdureSagasIncomplete": "warning",
        "PerdureStartsLate": "warning",  # OBS-13
        "PerdureLeasesLost": "warning",
    }
    assert wanted.items() <= severities.items()
    for rule in rules():
        assert {"summary", "description"} == set(rule["annotations"])


def test_panels_lie_beside_each_other() -> None:
    places = [tuple(panel["gridPos"].values()) for panel in json.loads(DASHBOARD.read_text())["panels"]]
    cells = [(x, y) for h, w, left, top in places for x in range(left, left + w) for y in range(top, top + h)]
    assert len(cells) == len(set(cells))
    ids = [panel["id"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len(ids) == len(set(ids))


def test_prometheus_itself_takes_the_rules() -> None:
    assert shutil.which("promtool"), "this test needs promtool: install Debian's package `prometheus`"
    for command in (["check", "rules", ALERTS], ["test", "rules", ALERTS.with_name("alerts_test.yml")]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
