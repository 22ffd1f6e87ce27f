"""Who may see and do what: sessions, forms of our own only, read-only, sub-paths, and text that stays text."""

from __future__ import annotations

import io
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientSession, web

from perdure import AsyncPerdure, TaskFailed, task
from perdure.api.keys import hash_key, new_key
from perdure.api.server import App, Server
from perdure.dashboard.pages import ACTIONS
from perdure.dashboard.site import invite
from perdure.engine.engine import Engine
from tests.dashboard.jobs import ok
from tests.dashboard.reader import Reader, reader

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}<svg/onload=alert(3)>"


@asynccontextmanager
async def serving(engine: Engine, **options: bool) -> AsyncIterator[str]:
    server = Server(App(engine, invite(**options)), port=0)
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop()


# ---------------------------------------------------------------------------------------------------- text stays text
async def test_b153_hostile_text_is_shown_as_text(app: AsyncPerdure, pages: Reader) -> None:
    """Field case B153: names, payload, result, error, reason, queue, worker, progress and note, in every page."""

    @task(name=HOSTILE[:60])
    async def hostile(ctx: Any, payload: Any) -> Any:
        ctx.progress(1, 2, HOSTILE)
        if payload == "fail":
            raise ValueError(HOSTILE)
        return HOSTILE

    async with app.worker(queues=[HOSTILE]):
        good = await app.enqueue(hostile, HOSTILE, queue=HOSTILE)
        await good.result()
        failed = await app.enqueue(hostile, "fail", queue=HOSTILE, retry={"max_attempts": 1})
        with pytest.raises(TaskFailed):
            await failed.result()
        await app.create_schedule(HOSTILE, task=hostile, cron="0 0 * * *")
        await app.pause("queue", HOSTILE, note=HOSTILE)
        run = await app.start_workflow(HOSTILE, HOSTILE, id=HOSTILE, queue="other")
        links = [
            "", "tasks", f"task?id={good.id}", f"task?id={failed.id}", "workflows", "failures", "schedules", "queues",
            "workers", *(await pages.get("schedules")).links, *(await pages.get("workflows")).links,
        ]  # fmt: skip
        for link in dict.fromkeys(links):
            if link.startswith("#"):
                continue
            seen = await pages.get(link.removeprefix("./"))
            assert seen.status == 200, link
            _is_clean(seen.html)
    assert HOSTILE in (await pages.get(f"task?id={failed.id}")).text
    await run.terminate()


def _is_clean(html: str) -> None:
    assert "<script>alert" not in html and "<img" not in html and "<svg/onload" not in html
    assert ">49<" not in html and "javascript:" not in html
    for attributes in re.findall(r"<[a-z][^>]*>", html):
        assert not re.search(r"\s(on[a-z]+|style)=", re.sub(r'"[^"]*"', '""', attributes)), attributes


async def test_every_answer_forbids_what_it_does_not_need(pages: Reader) -> None:
    for page in ("", "login", "task?id=none", "static/none.js"):
        policy = (await pages.get(page)).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert (await pages.get("")).headers["cache-control"] == "no-store"


async def test_what_pages_need_is_here_and_kept(pages: Reader) -> None:
    """No build step, no external asset."""
    home = await pages.get()
    wanted = [given.get("src") or given.get("href") or "" for tag, given in home.tags if tag in ("script", "link")]
    assert len(wanted) == 5
    for name in wanted:
        asset = await pages.get(name)
        assert asset.status == 200 and "immutable" in asset.headers["cache-control"], name
        assert "http://" not in asset.html.replace("http://www.w3.org/2000/svg", "") and "https://" not in asset.html


# -------------------------------------------------------------------------------------------------------- forms
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
async def test_forms_of_other_sites_do_nothing(app: AsyncPerdure, pages: Reader, headers: dict[str, str]) -> None:
    job = await app.enqueue(ok, 1)
    form = (await pages.get(f"task?id={job.id}")).form("task-cancel")
    assert (await pages.post("task-cancel", form.fields, headers=headers)).status == 403
    assert (await app.get(job.id)).state == "ENQUEUED"


async def test_forms_without_their_token_do_nothing(app: AsyncPerdure, pages: Reader) -> None:
    job = await app.enqueue(ok, 1)
    form = (await pages.get(f"task?id={job.id}")).form("task-cancel")
    for token in ("", "guessed"):
        assert (await pages.post("task-cancel", {**form.fields, "token": token})).status == 403
    async with reader(pages.base) as stranger:
        assert (await stranger.post("task-cancel", form.fields)).status == 403
    assert (await app.get(job.id)).state == "ENQUEUED"
    ours = {"Origin": pages.base.rstrip("/")}
    assert (await pages.post("task-cancel", form.fields, headers=ours)).status == 200


async def test_a_form_that_is_too_large_is_refused(pages: Reader) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    body = io.BytesIO(b"id=" + b"x" * 2_000_000)
    async with pages.session.post(f"{pages.base}task-cancel", data=body, headers=headers) as answer:
        assert answer.status == 413


async def test_read_only_changes_nothing(engine: Engine) -> None:
    async with serving(engine, read_only=True) as url, AsyncPerdure(url) as app, reader(url) as pages:
        job = await app.enqueue(ok, 1)
        seen = await pages.get(f"task?id={job.id}")
        assert not seen.offers("task-cancel") and "read-only" in seen.text
        token = seen.form("namespace").fields["token"]
        for action in sorted(ACTIONS):
            refused = await pages.post(action, {"token": token, "id": job.id})
            assert refused.status == 403, action
        assert (await app.get(job.id)).state == "ENQUEUED"


# ---------------------------------------------------------------------------------------------------------- sessions
async def test_with_keys_people_sign_in(engine: Engine) -> None:
    """SEC-02, SEC-05: a session is of the key's namespace, is no key, and ends with it."""
    keys = {name: new_key() for name in ("blue", "green")}
    for name, key in keys.items():
        await engine.store.add_api_key(hash_key(key), name, name)
    async with serving(engine) as url, reader(url) as pages:
        async with AsyncPerdure(url, api_key=keys["blue"]) as app:
            job = await app.enqueue(ok, 1)
        asked = await pages.get(f"task?id={job.id}")
        assert asked.url.startswith(f"{pages.base}login?to=task") and job.id not in asked.text
        wrong = await pages.send(asked.form("login"), key="pdk_wrong")
        assert wrong.status == 401 and "not known" in wrong.text
        seen = await pages.send(wrong.form("login"), key=keys["blue"])
        assert job.id in seen.text and seen.url.endswith(job.id)
        cookies = {morsel.key: morsel for morsel in pages.session.cookie_jar}
        session = cookies["perdure-session"]
        assert session["httponly"] and session["samesite"] == "Strict" and keys["blue"] not in session.value
        out = await pages.send(seen.form("logout"))
        again = await pages.send(out.form("login"), key=keys["blue"])
        assert again.url == pages.base and again.offers("logout"), "to the overview, and not to the form again"
        await pages.send(again.form("logout"))
        assert "login" in (await pages.get("tasks")).url
        other = await pages.send((await pages.get("login?to=https://evil.example")).form("login"), key=keys["green"])
        assert other.url == pages.base, "no way to other sites"
        assert (await pages.get(f"task?id={job.id}")).status == 404, "of another namespace"
        split = await pages.send((await pages.get("login")).form("login"), key=keys["blue"], to="tasks?a\r\nX-Evil: 1")
        assert "X-Evil" not in split.headers and split.url.startswith(f"{pages.base}tasks?a")
        forged = session.value[:-2] + ("AA" if session.value[-2:] != "AA" else "BB")
        async with ClientSession(cookies={"perdure-session": forged}) as stranger:
            async with stranger.get(f"{url}/tasks", allow_redirects=False) as answer:
                assert answer.status == 303
            headers = {"Accept": "text/event-stream"}
            async with stranger.get(f"{url}/tasks", headers=headers, allow_redirects=False) as answer:
                assert answer.status == 401


async def test_a_link_from_elsewhere_does_not_ask_to_sign_in_again(engine: Engine) -> None:
    """Browsers keep strict cookies back when another site leads here; the same request from here has them."""
    await engine.store.add_api_key(hash_key(new_key()), "blue", "blue")
    async with serving(engine) as url, reader(url) as pages:
        seen = await pages.get("tasks?state=FAILED", headers={"Sec-Fetch-Site": "cross-site"})
        assert "Go on to the dashboard" in seen.text and seen.links == ["tasks?state=FAILED"]


async def test_without_keys_a_reader_picks_the_namespace(app: AsyncPerdure, pages: Reader) -> None:
    job = await app.enqueue(ok, 1)
    seen = await pages.send((await pages.get()).form("namespace"), namespace="blue & green")
    assert "blue & green" in str(seen.form("namespace").fields)
    assert job.id not in (await pages.get("tasks")).text
    await pages.send(seen.form("namespace"), namespace="default")
    assert job.id in (await pages.get("tasks")).text


# --------------------------------------------------------------------------------------------------------- sub-paths
async def test_it_works_below_a_sub_path(app: AsyncPerdure, pages: Reader, unused_port: int) -> None:
    """Behind a proxy that is told nothing but to take the path away, with another host name on the outside."""

    async def forward(request: web.Request) -> web.Response:
        path = request.raw_path.removeprefix("/ops/perdure/")
        headers = {name: value for name, value in request.headers.items() if name != "Host"}
        headers["X-Forwarded-Host"] = request.host
        async with ClientSession() as session:
            body = await request.read()
            url = pages.base + path
            async with session.request(
                request.method, url, headers=headers, data=body, allow_redirects=False
            ) as answer:
                kept = [(name, value) for name, value in answer.headers.items() if name in _KEPT]
                return web.Response(status=answer.status, body=await answer.read(), headers=kept)

    outside = web.Application()
    outside.router.add_route("*", "/ops/perdure/{tail:.*}", forward)
    runner = web.AppRunner(outside)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_port).start()
    job = await app.enqueue(ok, 1)
    async with reader(f"http://127.0.0.1:{unused_port}/ops/perdure") as visitor:
        home = await visitor.get()
        for link in home.links:
            if not link.startswith("#"):
                assert (await visitor.get(link.removeprefix("./"))).status == 200, link
        page = await visitor.get(f"task?id={job.id}")
        origin = {"Origin": f"http://127.0.0.1:{unused_port}"}
        seen = await visitor.post("task-cancel", page.form("task-cancel").fields, headers=origin)
        assert "CANCELED" in seen.text and seen.url.startswith(visitor.base)
    await runner.cleanup()


_KEPT = ("Content-Type", "content-type", "location", "set-cookie", "Location", "Set-Cookie")


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
