"""An agent loop: a model says what to do, tools do it, a person approves what costs money.

Every call of the model and of a tool is recorded, so a crash in the tenth round does not pay for nine rounds again. The
model is a fake in this file: it thinks aloud, word by word, and decides by the transcript alone.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from outside import effect

from perdure import Context, Perdure, WorkflowContext, task, workflow

MOST_ROUNDS = 20


@dataclass
class Goal:
    """The id is that of the workflow."""

    id: str
    text: str
    patience: str = "24h"
    seconds_per_word: float = 0.05


@dataclass
class Thought:
    """What the model wants: a tool with its argument, or to say something and be done."""

    said: str
    tool: str = ""
    argument: str = ""


@dataclass
class Prompt:
    """A question to the model."""

    goal: Goal
    transcript: list[str] = field(default_factory=list)


@workflow(name="agent")
class Agent:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.asking = ""

    async def run(self, ctx: WorkflowContext, goal: Goal) -> str:
        for _ in range(MOST_ROUNDS):
            thought = await ctx.execute_activity(ask_model, Prompt(goal, list(self.lines)))
            self.lines.append(f"model: {thought.said}")
            if not thought.tool:
                return thought.said
            if thought.tool in COSTLY and not await self.approved(ctx, goal, thought):
                self.lines.append(f"{thought.tool}: not approved")
                continue
            answer = await ctx.step(thought.tool, TOOLS[thought.tool], goal.id, thought.argument)
            self.lines.append(f"{thought.tool}: {answer}")
        return "I could not find out in time"

    async def approved(self, ctx: WorkflowContext, goal: Goal, thought: Thought) -> bool:
        self.asking = f"{thought.tool} {thought.argument}?"
        decision = await ctx.wait_for_signal("decision", timeout=goal.patience)
        self.asking = ""
        return decision == "yes"

    @workflow.query
    def transcript(self) -> list[str]:
        return self.lines

    @workflow.query
    def question(self) -> str:
        """What a person is to approve; empty when nothing is."""
        return self.asking


@task(heartbeat_timeout="30s", retries=10)
async def ask_model(ctx: Context, prompt: Prompt) -> Thought:
    """Streams what the model says as progress, which arrives once a second and which `describe` shows."""
    thought = think(prompt.transcript)
    words = thought.said.split()
    for count in range(1, len(words) + 1):
        await asyncio.sleep(prompt.goal.seconds_per_word)
        ctx.progress(count, len(words), " ".join(words[:count]))
    effect(prompt.goal.id, "ask_model", f"round {len(prompt.transcript) // 2 + 1}")
    return thought


def think(transcript: list[str]) -> Thought:
    """The fake model."""
    last = transcript[-1] if transcript else ""
    if not last:
        return Thought("I look up what it costs", "look_up", "kettle")
    if last.startswith("look_up:"):
        return Thought(f"{last.removeprefix('look_up: ')} is fair so I buy it", "buy", "kettle")
    if last == "buy: not approved":
        return Thought("nothing was bought")
    return Thought("the kettle is on its way")


def look_up(agent_id: str, what: str) -> str:
    effect(agent_id, "look_up", what)
    return "30 EUR"


def buy(agent_id: str, what: str) -> str:
    effect(agent_id, "buy", what)
    return "bought"


TOOLS = {"look_up": look_up, "buy": buy}
COSTLY = {"buy"}


def main() -> None:
    with Perdure("sqlite:///workflows.db") as app, app.worker():
        goal = Goal("agent-1", "buy a kettle", seconds_per_word=0.25)
        run = app.start_workflow(Agent, goal, id=goal.id)
        shown = ""
        while not (question := run.query("question", timeout=10)):
            for activity in run.describe().pending_activities:
                if activity.progress is not None and activity.progress.message != shown:
                    shown = activity.progress.message
                    print("...", shown)
            time.sleep(0.1)
        print("approve:", question)
        run.signal("decision", "yes")
        print(run.result(timeout=30))
        print(*run.query("transcript"), sep="\n")


if __name__ == "__main__":
    main()
