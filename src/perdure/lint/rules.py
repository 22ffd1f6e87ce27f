"""The rules by name, and the calls of Python and of well-known libraries that break them."""

from __future__ import annotations

ADVICE = {
    "time": "the clock differs on replay: use ctx.now(), and ctx.sleep() to wait",
    "random": "it differs on replay: use ctx.random() or ctx.uuid4()",
    "io": "workflow code is replayed, so it must not reach out of itself: do it in a step or an activity",
    "thread": "threads and processes run in no recorded order: use asyncio tasks or ctx.parallel",
    "set-order": "the order of a set differs between processes: iterate over sorted(...), or keep a list or a dict",
    "no-timeout": "it may wait for ever: give it timeout=, and decide what happens then",
    "side-effect": "it happens again on every replay: do it in a step or an activity",
    "no-compensation": "nothing undoes this step if a later one fails: call add_compensation before it",
    "swallow": "it may catch the exception that suspends the workflow: write `except Exception`, or raise it again",
}
"""Rule -> what to do instead."""

_CALLS = {
    "time": (
        "time.*", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
    ),
    "random": ("random.*", "uuid.uuid1", "uuid.uuid4", "os.urandom", "os.getrandom", "secrets.*", "numpy.random.*"),
    "io": (
        "open", "input", "io.open", "os.system", "os.popen", "os.remove", "os.unlink", "os.rename", "os.replace",
        "os.mkdir", "os.makedirs", "os.rmdir", "os.listdir", "os.scandir", "os.walk", "os.stat", "os.open", "os.kill",
        "os.path.exists", "os.path.isfile", "os.path.isdir", "os.path.getsize", "os.path.getmtime", "glob.*",
        "shutil.*", "tempfile.*", "subprocess.*", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell",
        "asyncio.open_connection", "asyncio.start_server", "socket.*", "ssl.*", "select.*", "urllib.request.*",
        "urllib3.*", "http.client.*", "requests.*", "httpx.*", "aiohttp.*", "websockets.*", "websocket.*", "grpc.*",
        "ftplib.*", "telnetlib.*", "paramiko.*",
    ),
    "thread": (
        "threading.*", "_thread.*", "multiprocessing.*", "concurrent.futures.*", "asyncio.to_thread", "os.fork",
        "os.spawnl", "os.spawnv", "os.posix_spawn",
    ),
    "side-effect": (
        "sqlite3.*", "psycopg.*", "psycopg2.*", "asyncpg.*", "pymysql.*", "MySQLdb.*", "aiosqlite.*", "sqlalchemy.*",
        "pymongo.*", "motor.*", "redis.*", "smtplib.*", "imaplib.*", "poplib.*", "boto3.*", "botocore.*",
        "google.cloud.*", "azure.*", "kafka.*", "confluent_kafka.*", "aiokafka.*", "pika.*", "aio_pika.*", "celery.*",
        "stripe.*", "twilio.*", "sendgrid.*", "slack_sdk.*", "elasticsearch.*",
    ),
}  # fmt: skip

_HARMLESS = {
    "time.strftime", "time.strptime", "time.struct_time", "threading.get_ident", "threading.current_thread",
    "socket.inet_aton", "socket.inet_ntoa", "subprocess.list2cmdline", "shutil.get_terminal_size",
}  # fmt: skip
"""Of what a star covers."""

_METHODS = {
    "read_text": "io", "read_bytes": "io", "write_text": "io", "write_bytes": "io",
    "run_in_executor": "thread",
}  # fmt: skip
"""Of objects whose type the source does not tell: names that hardly mean anything else."""


def rule_of(name: str) -> str | None:
    """Of a call by its full name, such as "datetime.datetime.now"."""
    if name in _HARMLESS:
        return None
    for rule, calls in _CALLS.items():
        for call in calls:
            if name == call or (call.endswith(".*") and name.startswith(call[:-1])):
                return rule
    return None


def rule_of_method(name: str) -> str | None:
    """Of a method of an unknown object."""
    return _METHODS.get(name)
