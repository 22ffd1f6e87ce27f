"""What the jobs compute: plain functions of files, which know nothing of queues."""

from __future__ import annotations

import csv
import random
import re
from collections import Counter
from difflib import SequenceMatcher
from pathlib import Path
from statistics import fmean
from typing import Any
from uuid import uuid4

from PIL import Image, ImageFilter

INPUT = Path(__file__).parent / "input"
RESAMPLES = 8_000
ECHO = 0.6
"""Two sentences that are at least this much alike are an echo."""


def summarize(values: list[float], source: random.Random) -> dict[str, float]:
    """Mean of a column with its 95 % bootstrap interval, least and greatest."""
    means = sorted(fmean(source.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return {
        "mean": round(fmean(values), 2),
        "low": round(means[int(0.025 * RESAMPLES)], 2),
        "high": round(means[int(0.975 * RESAMPLES)], 2),
        "min": min(values),
        "max": max(values),
    }


def column(file: str, name: str) -> list[float]:
    """The values of one column of a file of readings; lines without one are left out."""
    with (INPUT / "readings" / file).open(newline="", encoding="utf-8") as lines:
        return [float(line[name]) for line in csv.DictReader(lines) if line[name]]


def thumbnail(photo: str, width: int, target: Path) -> dict[str, Any]:
    """A smaller, cleaned and sharpened copy of a photograph, in the folder `target`. The file appears whole or not at
    all, and doing it twice gives the same file: what a job that may run again should look like."""
    image = Image.open(INPUT / "photos" / photo).convert("RGB")
    clean = image.filter(ImageFilter.MedianFilter(7))
    small = clean.resize((width, round(width * image.height / image.width)), Image.Resampling.LANCZOS)
    small = small.filter(ImageFilter.UnsharpMask()).quantize(128, kmeans=3)
    target.mkdir(parents=True, exist_ok=True)
    final = target / f"{Path(photo).stem}-{width}.png"
    part = target / f".{final.stem}.{uuid4().hex}"
    small.save(part, format="PNG", optimize=True)
    part.replace(final)
    return {"file": final.name, "size": list(small.size), "bytes": final.stat().st_size}


def sentences(note: str) -> list[str]:
    """The sentences of a note, in order."""
    text = " ".join((INPUT / "notes" / note).read_text(encoding="utf-8").split())
    return [part for part in re.split(r"(?<=[.?!]) ", text) if part]


def digest(note: str) -> dict[str, Any]:
    """Statistics of a note, and which of its sentences nearly stand in another place of the notes too."""
    own = sentences(note)
    words = re.findall(r"[a-z']+", " ".join(own).lower())
    others = [(path.name, line) for path in sorted((INPUT / "notes").glob("*.txt")) for line in sentences(path.name)]
    echoes = [
        {"sentence": mine, "in": where, "as": theirs}
        for mine in own
        for where, theirs in others
        if theirs != mine and SequenceMatcher(None, mine, theirs, autojunk=False).ratio() >= ECHO
    ]
    long_words = Counter(word for word in words if len(word) > 4)
    return {
        "words": len(words),
        "sentences": len(own),
        "words_per_sentence": round(len(words) / len(own), 1),
        "frequent": [word for word, _ in long_words.most_common(3)],
        "echoes": echoes,
    }
