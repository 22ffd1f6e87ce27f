"""Makes the readings and photographs in input/ again, as they are shipped. The notes were written by hand.

python examples/field_station/make_input.py [FOLDER]
"""

from __future__ import annotations

import math
import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

from PIL import Image, ImageDraw

STATIONS = {"creek": 9.5, "mast": 8.0}
"""Station -> mean temperature of its year in degrees Celsius."""
WIDTH, HEIGHT = 640, 400


def readings(station: str, month: int, source: random.Random) -> str:
    """One month of a station, a line for every six hours; a few lines lack a value, as such files do."""
    lines = ["time,temperature_c,wind_ms,rain_mm"]
    moment = datetime(2025, month, 1)
    drift = 0.0
    while moment.month == month:
        season = -7.5 * math.cos(2 * math.pi * (moment.timetuple().tm_yday - 20) / 365)
        daily = 3.0 * math.sin(2 * math.pi * (moment.hour - 9) / 24)
        drift = 0.8 * drift + source.gauss(0, 1.2)
        temperature = f"{STATIONS[station] + season + daily + drift:.1f}"
        wind = f"{source.weibullvariate(5.0, 1.8):.1f}"
        rain = f"{source.expovariate(0.5) if source.random() < 0.25 else 0:.1f}"
        if source.random() < 0.01:
            temperature = ""
        lines.append(f"{moment:%Y-%m-%dT%H:%M},{temperature},{wind},{rain}")
        moment += timedelta(hours=6)
    return "\n".join(lines) + "\n"


def photo(month: int, source: random.Random) -> Image.Image:
    """The marsh in one month: sky, sun, far bank, water with the sun in it, reeds."""
    warmth = (1 - math.cos(2 * math.pi * (month - 0.7) / 12)) / 2
    image = Image.new("RGB", (WIDTH, HEIGHT))
    draw = ImageDraw.Draw(image)
    horizon = 210
    for y in range(horizon):
        depth = y / horizon
        draw.line((0, y, WIDTH, y), (int(90 + 120 * depth), int(130 + 80 * depth), int(190 + 30 * warmth)))
    for y in range(horizon, HEIGHT):
        depth = (y - horizon) / (HEIGHT - horizon)
        draw.line((0, y, WIDTH, y), (int(110 - 70 * depth), int(140 - 60 * depth), int(150 - 40 * depth)))
    x, y, radius = 80 + 44 * (month - 1), int(150 - 90 * warmth), 24
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), (255, 240, int(160 + 60 * warmth)))
    for _ in range(30):
        dy = source.randrange(horizon + 8, HEIGHT - 40)
        half = source.randrange(4, 26)
        draw.line((x - half, dy, x + half, dy), (230, 225, 190), 2)
    bank = [(0, horizon)]
    bank += [(step, horizon - source.randrange(6, 30)) for step in range(0, WIDTH + 40, 40)]
    draw.polygon([*bank, (WIDTH, horizon)], (int(60 + 60 * (1 - warmth)), int(80 + 50 * warmth), 60))
    for _ in range(45):
        foot, tall = source.randrange(WIDTH), source.randrange(60, 150)
        lean = source.randrange(-25, 26)
        colour = (int(150 - 80 * warmth), int(110 + 30 * warmth), source.randrange(40, 70))
        draw.line((foot, HEIGHT, foot + lean, HEIGHT - tall), colour, 3)
    return image


def main(folder: Path) -> None:
    for kind in ("readings", "photos"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for month in range(1, 13):
        for station in STATIONS:
            text = readings(station, month, random.Random(f"{station} {month}"))
            (folder / "readings" / f"{station}-{month:02}.csv").write_text(text, encoding="utf-8")
        picture = photo(month, random.Random(f"photo {month}"))
        picture.quantize(64).save(folder / "photos" / f"marsh-{month:02}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "input")
