"""The fixtures, as a project that installs Perdure gets them: found by the entry point, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

APPLICATION = """
from perdure import Perdure, task, workflow

app = Perdure("sqlite:////nonexistent/folder/jobs.db")

@task
def double(ctx, payload):
    return payload * 2

def order(number):
    return app.enqueue(double, number, delay="1h")

@workflow
def plain(ctx, number):
    ctx.sleep(days=30)
    return ctx.execute_activity(double, number)

@workflow
async def in_async(ctx, number):
    await ctx.sleep(days=30)
    return await ctx.execute_activity(double, number)
"""

CONFTEST = """
import pytest
from application import app

@pytest.fixture
def perdure_apps():
    return [app]
"""

TESTS = """
from application import app, double, in_async, order, plain

def test_code_under_test_is_redirected(perdure):
    job = order(4)
    assert [waiting.payload for waiting in perdure.enqueued(double)] == [4]
    perdure.run()
    assert job.result() == 8

def test_each_test_has_its_own(perdure, perdure_app):
    assert perdure.enqueued() == []
    assert perdure_app.enqueue(double, 1).result() == 2

def test_workflows(perdure):
    runs = [app.start_workflow(code, 4) for code in (plain, in_async)]
    perdure.advance(days=29)
    assert [run.describe().status for run in runs] == ["RUNNING", "RUNNING"]
    perdure.replace(double, lambda ctx, number: "none")
    assert [run.result() for run in runs] == ["none", "none"]

def test_a_job_that_fails(perdure):
    perdure.app.enqueue("nobody", 1)
    perdure.run()
"""


def test_fixtures(tmp_path: Path) -> None:
    """SDK-14."""
    (tmp_path / "application.py").write_text(APPLICATION)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_application.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    assert "1 failed" in done.stdout
    assert "TaskFailed: UnknownHandler: the worker has no task named 'nobody'" in done.stdout
