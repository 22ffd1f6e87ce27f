"""Pages as HTML. Whatever is put into a template is escaped, unless it was made here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from perdure.dashboard import assets, values
from perdure.dashboard.request import link
from perdure.dashboard.visit import Page, Visit

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPANS = (("d", 86_400), ("h", 3_600), ("min", 60))


def render(page: Page, *, visit: Visit | None = None, token: str = "") -> str:
    """A page as HTML; without a visit it is one for somebody who has not signed in."""
    template = _ENVIRONMENT.get_template(page.template)
    return template.render(title=page.title, visit=visit, token=token, **page.data)


def moment(time: datetime | None) -> Markup:
    """A time, in UTC; a script shows it in the reader's zone."""
    if time is None:
        return Markup("")
    time = time.astimezone(UTC)
    machine = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Markup('<time datetime="{}">{} UTC</time>').format(machine, time.strftime("%Y-%m-%d %H:%M:%S"))


def at(micros: int) -> datetime:
    """The time of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=micros)


def duration(seconds: float | timedelta | None) -> str:
    """A length of time in its two largest units: "1.25 s", "3 min 4 s", "2 d 5 h"."""
    if seconds is None:
        return ""
    left = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if abs(left) < 1:
        return f"{left * 1000:.0f} ms"
    if left < 60:
        return f"{left:.3g} s"
    parts: list[str] = []
    for unit, length in (*_SPANS, ("s", 1)):
        count, left = divmod(left, length)
        if count or parts:
            parts.append(f"{count:.0f} {unit}")
    return " ".join(parts[:2])


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters.update(moment=moment, duration=duration, at=at, value=values.shown, json=values.plain)
    found.globals.update(link=link, asset=assets.address)
    return found


_ENVIRONMENT = _environment()
