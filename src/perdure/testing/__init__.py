"""Tests of applications: run jobs and workflows in the test's own process, on a clock that jumps.

with jumping(app) as env:
    job = app.enqueue(remind, {"user": 7}, delay="1h")
    env.run()
    assert job.result() == "sent"

Nothing is simulated. A database in memory, an engine and a worker run as in production: payloads are encoded, stored
and decoded, attempts fail and back off, time limits and cancellation count. Only the clock of the database is another
one, which jumps over the times in which nothing happens, and jobs run when the test says so, by default one after
the other.

A Replayer asks of recorded histories whether today's code is fit to go on with them.
"""

from perdure.testing.environment import AsyncEnvironment, Environment, jumping
from perdure.testing.waiting import Waiting
from perdure.worker.replay import Replayed, Replayer

__all__ = ["jumping", "Environment", "AsyncEnvironment", "Waiting", "Replayer", "Replayed"]
