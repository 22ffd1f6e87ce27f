"""`perdure lint`: RPLY-14, SAGA-09, OPS-11. Each rule finds what it is about, and lets its neighbours be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent, indent

import pytest
from typer.testing import CliRunner

from perdure.cli.main import cli
from perdure.lint.findings import findings
from perdure.lint.rules import ADVICE

ROOT = Path(__file__).parents[2]


def broken(source: str) -> list[tuple[int, str]]:
    """Line and rule of each finding."""
    return [(finding.line, finding.rule) for finding in findings(dedent(source), "app.py")]


def in_workflow(body: str, imports: str = "") -> list[tuple[int, str]]:
    """Findings in the body of an async workflow; its first line is line 1."""
    head = f"{imports}\nfrom perdure import workflow\n@workflow\nasync def flow(ctx, value):\n"
    lines = head.count("\n")
    body = indent(dedent(body).strip("\n"), "    ")
    return [(finding.line - lines, finding.rule) for finding in findings(head + body + "\n", "app.py")]


def one(line: str, imports: str = "") -> str:
    """The rule that a line breaks."""
    found = in_workflow(line, imports)
    assert len(found) <= 1, found
    return found[0][1] if found else ""


@pytest.mark.parametrize(
    ("rule", "imports", "line"),
    [
        ("time", "import time", "time.time()"),
        ("time", "import time as clock", "clock.sleep(1)"),
        ("time", "from time import sleep", "sleep(1)"),
        ("time", "import time", "time.monotonic()"),
        ("", "import time", "time.strftime('%Y', value)"),
        ("time", "from datetime import datetime", "datetime.now()"),
        ("time", "from datetime import datetime as dt, UTC", "dt.now(UTC)"),
        ("time", "import datetime", "datetime.datetime.utcnow()"),
        ("time", "import datetime", "datetime.date.today()"),
        ("", "from datetime import datetime", "datetime.fromisoformat(value)"),
        ("", "import asyncio", "await asyncio.sleep(1)"),
        ("", "", "ctx.now()"),
        ("random", "import random", "random.choice([1, 2])"),
        ("random", "from random import randint", "randint(1, 2)"),
        ("random", "import random", "random.Random()"),
        ("", "import random", "random.Random(4).random()"),
        ("random", "import uuid", "uuid.uuid4()"),
        ("random", "from uuid import uuid1", "uuid1()"),
        ("", "import uuid", "uuid.UUID(value)"),
        ("random", "import os", "os.urandom(8)"),
        ("random", "import secrets", "secrets.token_hex()"),
        ("", "", "ctx.random().random()"),
        ("io", "", "open('a')"),
        ("io", "import requests", "requests.get(value)"),
        ("io", "import httpx", "httpx.AsyncClient()"),
        ("io", "import aiohttp", "aiohttp.ClientSession()"),
        ("io", "import urllib.request", "urllib.request.urlopen(value)"),
        ("", "import urllib.parse", "urllib.parse.quote(value)"),
        ("io", "from urllib import request", "request.urlopen(value)"),
        ("io", "import socket", "socket.create_connection(value)"),
        ("io", "import subprocess", "subprocess.run(['ls'])"),
        ("io", "import os", "os.system('ls')"),
        ("io", "from pathlib import Path", "Path('a').read_text()"),
        ("", "import os", "os.path.join('a', value)"),
        ("thread", "import threading", "threading.Thread()"),
        ("thread", "import threading", "threading.Timer(1, print)"),
        ("thread", "import multiprocessing", "multiprocessing.Process()"),
        ("thread", "from concurrent.futures import ThreadPoolExecutor", "ThreadPoolExecutor()"),
        ("thread", "import asyncio", "await asyncio.to_thread(print)"),
        ("thread", "import asyncio", "asyncio.get_running_loop().run_in_executor(None, print)"),
        ("", "import asyncio", "await asyncio.gather(ctx.step('a', print), ctx.step('b', print))"),
        ("side-effect", "import sqlite3", "sqlite3.connect('a')"),
        ("side-effect", "import smtplib", "smtplib.SMTP('host')"),
        ("side-effect", "import boto3", "boto3.client('s3')"),
        ("side-effect", "import redis", "redis.Redis()"),
        ("side-effect", "", "global count"),
        ("set-order", "", "for item in set(value): print(item)"),
        ("set-order", "", "for item in {1, 2}: print(item)"),
        ("set-order", "", "print([item for item in {x for x in value}])"),
        ("set-order", "", "for number, item in enumerate(set(value)): print(item)"),
        ("set-order", "", "for item in set(value) | {3}: print(item)"),
        ("set-order", "import asyncio", "await asyncio.gather(*{ctx.sleep(1)})"),
        ("", "", "for item in sorted(set(value)): print(item)"),
        ("", "", "for item in {'a': 1}: print(item)"),
        ("no-timeout", "", "await ctx.wait_for_signal('go')"),
        ("no-timeout", "", "await ctx.wait_for_event('go')"),
        ("no-timeout", "", "await ctx.wait_for_event('go', timeout=None)"),
        ("no-timeout", "", "await ctx.wait_condition(lambda: True)"),
        ("", "", "await ctx.wait_for_signal('go', timeout='1h')"),
        ("", "", "await ctx.wait_for_signal('go', '1h')"),
        ("", "", "await ctx.wait_condition(ctx.all_handlers_finished)"),
        ("", "import asyncio", "await asyncio.wait_for(ctx.wait_for_signal('go'), 60)"),
    ],
)  # fmt: skip
def test_rules(rule: str, imports: str, line: str) -> None:
    """RPLY-14."""
    assert one(line, imports) == rule


def test_a_name_that_was_given_to_a_set_is_one() -> None:
    assert in_workflow("""
        seen: set[str] = known()
        more = {1}
        again = more.union(seen)
        for item in again: print(item)
        for item in seen: print(item)
        ordered = list(value)
        for item in ordered: print(item)
    """) == [(4, "set-order"), (5, "set-order")]  # fmt: skip


def test_a_wait_within_a_time_out_of_asyncio_has_one() -> None:
    body = """
        async with asyncio.timeout(60):
            await ctx.wait_for_signal("go")
        await ctx.wait_for_signal("go")
    """
    assert in_workflow(body, "import asyncio") == [(3, "no-timeout")]


# --------------------------------------------------------------------------------------------------- what is looked at
def test_only_workflow_code_is_looked_at() -> None:
    assert broken("""
        import time
        from perdure import task, workflow

        print(time.time())

        @task
        def charge(ctx, payload):
            return time.time()

        def step():
            return time.time()

        @workflow
        def plain(ctx, payload):
            ctx.step("a", step)
            ctx.step("b", time.time)
            ctx.step("c", lambda: time.time())
            ctx.side_effect(lambda: time.time())
            ctx.parallel("d", [(lambda: time.time(),)])
            return time.time()

        @workflow(name="other")
        async def other(ctx):
            return time.time()
    """) == [(21, "time"), (25, "time")]  # fmt: skip


def test_all_methods_of_a_class() -> None:
    assert broken("""
        import random
        import perdure

        @perdure.workflow(name="cart")
        class Cart:
            def __init__(self):
                self.key = random.random()

            async def run(self, ctx):
                return random.random()

            @perdure.workflow.signal
            def add(self, item):
                self.key = random.random()

        class Other:
            def run(self):
                return random.random()
    """) == [(8, "random"), (11, "random"), (15, "random")]  # fmt: skip


def test_one_level_of_helpers() -> None:
    """Functions of the module that are called by name, and handlers that are registered; not what those call."""
    assert broken("""
        import time
        from perdure.sdk.workflow import workflow as durable

        def deep():
            return time.time()

        def helper():
            deep()
            return time.time()

        @durable
        async def flow(ctx):
            def handler(value):
                return time.time()

            def elsewhere():
                return time.time()

            ctx.on_signal("go", handler)
            ctx.step("a", elsewhere)
            helper()
    """) == [(10, "time"), (15, "time")]  # fmt: skip


def test_a_task_that_is_called_is_no_activity() -> None:
    assert broken("""
        from perdure import task, workflow

        @task
        def charge(ctx, payload): ...

        @workflow
        def flow(ctx):
            ctx.execute_activity(charge, 1)
            charge(None, 1)
    """) == [(10, "side-effect")]  # fmt: skip


def test_what_is_named_workflow_elsewhere_is_none() -> None:
    assert broken("""
        import time
        from prefect import workflow

        @workflow
        def flow():
            return time.time()
    """) == []  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- sagas
def test_SAGA_09_a_step_of_a_saga_has_a_compensation() -> None:
    assert in_workflow("""
        await ctx.step("quote", quote)
        saga = ctx.saga()
        try:
            saga.add_compensation(cancel, "flight")
            await ctx.step("flight", book)
            await ctx.step("hotel", book)
            await ctx.execute_activity(rent)
            saga.add_compensation(give_back)
            await ctx.execute_child(insure)
            await ctx.step("pay", pay)
        except Exception:
            await saga.compensate()
            await ctx.step("tell", mail)
            raise
        saga.pivot()
        await ctx.step("send", mail)
    """) == [(6, "no-compensation"), (9, "no-compensation")]  # fmt: skip


def test_without_a_saga_none_is_missing() -> None:
    assert in_workflow('await ctx.step("a", print)\nawait ctx.step("b", print)') == []


# ---------------------------------------------------------------------------------------------------------- swallowing
def test_code_must_not_catch_what_suspends_it() -> None:
    assert in_workflow("""
        try:
            await ctx.step("a", print)
        except:
            pass
        try:
            ctx.sleep(1)
        except (ValueError, BaseException):
            print("ended")
        try:
            await ctx.step("a", print)
        except BaseException:
            print("ended")
            raise
        try:
            await ctx.step("a", print)
        except Exception:
            pass
        try:
            int(value)
        except:
            pass
        for item in value:
            try:
                await ctx.step("a", print)
            finally:
                continue
        with contextlib.suppress(BaseException):
            await ctx.step("a", print)
    """, "import contextlib") == [(3, "swallow"), (7, "swallow"), (26, "swallow"), (27, "swallow")]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ comments
def test_a_comment_lets_one_line_be() -> None:
    assert in_workflow("""
        time.time()  # perdure: allow time
        time.time()  # perdure: allow random, time
        time.time()  # perdure: allow random
        print("# perdure: allow time", time.time())
    """, "import time") == [(3, "time"), (4, "time")]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- command
APP = """import time
raise SystemExit("this is not to be imported")
from perdure import workflow

@workflow
def flow(ctx):
    open("a")
    return time.time()
"""


def test_the_command(tmp_path: Path) -> None:
    """As a shell sees it; the code is not imported."""
    (tmp_path / "app.py").write_text(APP)
    command = [sys.executable, "-m", "perdure", "lint", "app.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == [
        f"app.py:7: io: open(): {ADVICE['io']}",
        f"app.py:8: time: time.time(): {ADVICE['time']}",
    ]


def test_folders_json_and_exit_statuses(tmp_path: Path) -> None:
    run = CliRunner()
    (tmp_path / "shop").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "shop" / "flows.py").write_text(APP)
    (tmp_path / ".hidden" / "flows.py").write_text(APP)
    (tmp_path / "good.py").write_text("print(1)\n")
    (tmp_path / "bad.py").write_text("def (\n")
    done = run.invoke(cli, ["lint", str(tmp_path / "shop"), str(tmp_path / "good.py"), "--json"])
    assert done.exit_code == 1
    found = json.loads(done.stdout)["findings"]
    assert [(each["line"], each["rule"]) for each in found] == [(7, "io"), (8, "time")]
    assert found[0]["file"] == str(tmp_path / "shop" / "flows.py")
    done = run.invoke(cli, ["lint", str(tmp_path / "good.py")])
    assert (done.exit_code, done.stdout) == (0, "nothing found\n")
    assert run.invoke(cli, ["lint", str(tmp_path / "bad.py")]).exit_code == 2
    assert run.invoke(cli, ["lint", str(tmp_path / "absent.py")]).exit_code == 2
    (tmp_path / "bad.py").unlink()
    assert len(run.invoke(cli, ["lint", str(tmp_path)]).stdout.splitlines()) == 2


def test_our_own_examples_are_clean() -> None:
    for file in (ROOT / "examples").rglob("*.py"):
        assert findings(file.read_text(encoding="utf-8"), str(file)) == []


def test_the_page_shows_every_rule() -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.M)) >= set(ADVICE)
