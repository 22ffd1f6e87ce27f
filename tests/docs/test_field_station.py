"""The example that `make demo` runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageChops

EXAMPLE = Path(__file__).parents[2] / "examples" / "field_station"
INPUT = EXAMPLE / "input"


def test_demo_loses_nothing_when_its_worker_is_killed(tmp_path: Path) -> None:
    """LEASE-06, TASK-01: every job succeeds, and some of them had been running when the worker was killed."""
    demo = subprocess.run(
        [sys.executable, EXAMPLE / "demo.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert "no connection" not in demo.stderr
    last = demo.stdout.splitlines()[-1]
    found = re.fullmatch(r"demo: (\d+) of (\d+) jobs succeeded, (\d+) resumed after a kill, 0 lost", last)
    assert found, last
    succeeded, total, resumed = map(int, found.groups())
    assert succeeded == total == 60
    assert 0 < resumed < total / 2  # what ran at the kill, and nothing else
    assert len(list((tmp_path / "demo-run" / "thumbnails").glob("*.png"))) == 24


def test_input_is_what_its_generator_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLE / "make_input.py", tmp_path], check=True)
    for made in sorted((tmp_path / "readings").iterdir()):
        assert made.read_text() == (INPUT / "readings" / made.name).read_text(), made.name
    for made in sorted((tmp_path / "photos").iterdir()):
        shipped = Image.open(INPUT / "photos" / made.name).convert("RGB")
        assert ImageChops.difference(Image.open(made).convert("RGB"), shipped).getbbox() is None, made.name


def test_thumbnail_twice_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that runs again leaves what the first run left, and no half-written file."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import work

    first = work.thumbnail("marsh-01.png", 160, tmp_path)
    before = (tmp_path / first["file"]).read_bytes()
    assert work.thumbnail("marsh-01.png", 160, tmp_path) == first
    assert [path.name for path in tmp_path.iterdir()] == [first["file"]]
    assert (tmp_path / first["file"]).read_bytes() == before
