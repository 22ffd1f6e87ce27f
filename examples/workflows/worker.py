"""All examples in one worker, beside a `perdure server --store sqlite:///workflows.db`: `perdure worker worker.py`."""

from __future__ import annotations

import agent
import backfill
import export
import onboarding
import order
import polling
import subscription
import travel

from perdure import Perdure

EXAMPLES = (order, travel, onboarding, subscription, polling, export, backfill, agent)

app = Perdure("http://127.0.0.1:7400")
