"""What the standing checks found, on the wire."""

from __future__ import annotations

from datetime import datetime

from perdure.core.body import Body


class Finding(Body):
    """Something that should not be as it is, and what to do about it. `namespace` is empty for what concerns the whole
    database; `examples` are ids of at most 5 of the `count` tasks, runs or the like."""

    check: str
    detail: str
    advice: str
    count: int = 1
    namespace: str = ""
    examples: list[str] = []


class Doctor(Body):
    """Run all standing checks now. They read, and change nothing."""


class DoctorReply(Body):
    """Findings about the database and about the caller's namespace. `whole` is false where there were more than a
    million open tasks: the others were not looked at."""

    at: datetime
    whole: bool = True
    checks: list[str] = []  #: names of all checks that ran
    findings: list[Finding] = []
