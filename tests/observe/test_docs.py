"""docs/metrics.md says of every metric what the program says."""

from __future__ import annotations

import re
from pathlib import Path

from perdure.observe import metrics
from perdure.worker import metrics as worker_metrics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
_ROW = re.compile(r"^\| `([a-z_0-9]+)` \| ([^|]*) \| (counter|histogram|gauge): ", re.MULTILINE)


def test_names_labels_and_kinds() -> None:
    """OBS-10 to OBS-14, OBS-24."""
    written = {
        (name, tuple(re.findall(r"`(\w+)`", labels)), kind) for name, labels, kind in _ROW.findall(PAGE.read_text())
    }
    tables = (("counter", metrics.COUNTERS), ("histogram", metrics.HISTOGRAMS), ("gauge", metrics.GAUGES))
    known = {(series.name, series.labels, kind) for kind, table in tables for series in table.values()}
    for name, labels in worker_metrics.LABELS.items():
        kinds = {worker_metrics.ENDED: "counter", worker_metrics.REPLAY: "histogram"}
        known.add((name, labels, kinds.get(name, "gauge")))
    assert written == known
