"""Spans of OpenTelemetry: one for each enqueue, attempt and step, joined by W3C trace context in the headers of tasks.

    from perdure.sdk.tracing import Tracing

    app = Perdure(url, middleware=[Tracing()])

The context goes along with a task or a workflow, and from a run to its activities, steps and children, so all of them
are one trace with whatever started them. Spans are made by what runs, never by code that is replayed: going through a
history again adds none. Needs the extra `otel`, and makes nothing until the application has set up an SDK of
OpenTelemetry (a tracer provider and an exporter).
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from importlib.metadata import version
from typing import Any

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from perdure.sdk.context import Context
from perdure.sdk.middleware import Middleware

_PROPAGATOR = TraceContextTextMapPropagator()
_QUIET = frozenset({"cancel", "drain", "lost"})
"""Reasons to stop that are no fault of the handler."""

_Running = tuple[trace.Span, Token[otel.Context]]
_RUNNING: ContextVar[_Running | None] = ContextVar("perdure_span", default=None)


class Tracing(Middleware):
    """Makes the spans. Best the first of the middleware, so that the others run within them. Without a
    `tracer_provider` the global one is used; the processes of `@task(process=True)` always use their own global one.
    """

    steps = True

    def __init__(self, tracer_provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("perdure", version("perdure"), tracer_provider)

    def __reduce__(self) -> tuple[type[Tracing], tuple[()]]:
        return Tracing, ()

    def before_enqueue(self, name: str, headers: dict[str, str]) -> None:
        about = {"perdure.task_type": name}
        with self._tracer.start_as_current_span(f"enqueue {name}", kind=trace.SpanKind.PRODUCER, attributes=about):
            _PROPAGATOR.inject(headers)

    def before(self, ctx: Context, payload: Any) -> None:
        parent = _PROPAGATOR.extract(ctx.headers)
        step = "/" in ctx.task_id
        span = self._tracer.start_span(
            f"{'step' if step else 'run'} {ctx.type}",
            parent,
            trace.SpanKind.INTERNAL if step else trace.SpanKind.CONSUMER,
            {
                "perdure.task_id": ctx.task_id,
                "perdure.task_type": ctx.type,
                "perdure.queue": ctx.queue,
                "perdure.attempt": ctx.attempt,
            },
        )
        _RUNNING.set((span, otel.attach(trace.set_span_in_context(span, parent))))

    def after(self, ctx: Context, result: Any) -> None:
        if (span := _left()) is not None:
            span.end()

    def error(self, ctx: Context, error: BaseException) -> None:
        if (span := _left()) is None:
            return
        if ctx.stop:
            span.set_attribute("perdure.stop", ctx.stop)
        if ctx.stop not in _QUIET:
            span.record_exception(error)
            span.set_status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}")
        span.end()


def _left() -> trace.Span | None:
    """The span of the attempt that ends here."""
    running = _RUNNING.get()
    if running is None:
        return None
    span, token = running
    _RUNNING.set(None)
    otel.detach(token)
    return span
