"""OpenTelemetry: spans for model calls, runs, contexts and searches of every memory in a process.

    from hiermem.integrations import otel

    otel.instrument()

Spans follow the semantic conventions for generative AI as far as those go; what is hiermem's own
is under ``hiermem.``. They have ids, names of models and counts. Texts are never in them: no
message, summary, question or answer, and of an error only its type. Needs the extra ``otel``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace

from hiermem import UsageError, __version__
from hiermem.tracing import Kind, Note, Value, set_tracer

__all__ = ["instrument", "uninstrument"]

#: The names that the semantic conventions have for what a span of a model call notes.
_OF_CALLS = {
    "model": "gen_ai.request.model",
    "max_tokens": "gen_ai.request.max_tokens",
    "answered_by": "gen_ai.response.model",
    "tokens_in": "gen_ai.usage.input_tokens",
    "tokens_out": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_PROVIDERS = {"OpenAIChat": "openai", "AnthropicChat": "anthropic", "LiteLLMChat": "litellm"}


def instrument(tracer_provider: trace.TracerProvider | None = None) -> None:
    """Make spans from now on, with ``tracer_provider`` or the global one.

    Raises UsageError for what is no provider.
    """
    if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
        raise UsageError(
            f"tracer_provider is {type(tracer_provider).__name__}; it must be a TracerProvider of "
            "OpenTelemetry"
        )
    tracer = trace.get_tracer("hiermem", __version__, tracer_provider)

    @contextmanager
    def span(kind: Kind, attributes: Mapping[str, Value]) -> Iterator[Note]:
        name, more = _begin(kind, attributes)
        remote = kind == "call" and attributes.get("remote") is True
        with tracer.start_as_current_span(
            name,
            kind=trace.SpanKind.CLIENT if remote else trace.SpanKind.INTERNAL,
            attributes={**_named(kind, attributes), **more},
            record_exception=False,  # its text and its frames may hold what was said
            set_status_on_exception=False,
        ) as made:

            def note(**found: Value) -> None:
                reason = found.pop("finish_reason", None)
                if reason is not None:
                    made.set_attribute("gen_ai.response.finish_reasons", [str(reason)])
                made.set_attributes(_named(kind, found))

            try:
                yield note
            except BaseException as error:
                failed = type(error).__qualname__
                made.set_attribute("error.type", failed)
                made.set_status(trace.Status(trace.StatusCode.ERROR, failed))
                raise

    set_tracer(span)


def uninstrument() -> None:
    """Make no more spans."""
    set_tracer(None)


def _begin(kind: Kind, attributes: Mapping[str, Value]) -> tuple[str, dict[str, str]]:
    """Return the name of a span, and the attributes that follow from its kind."""
    if kind == "call":
        adapter = str(attributes["adapter"])
        return f"chat {attributes['model']}", {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDERS.get(adapter, adapter),
        }
    if kind == "search":
        return "retrieval hiermem", {"gen_ai.operation.name": "retrieval"}
    return f"hiermem {attributes['task'] if kind == 'run' else kind}", {}


def _named(
    kind: Kind, attributes: Mapping[str, Value]
) -> dict[str, str | int | float | bool | tuple[float, ...]]:
    """Return attributes under their full names, without unknown attributes."""
    names = _OF_CALLS if kind == "call" else {}
    found = {
        names.get(name, f"hiermem.{name}"): value
        for name, value in attributes.items()
        if value is not None and value != ""
    }
    if attributes.get("task") != "consolidation" and "hiermem.subject" in found:
        found["gen_ai.conversation.id"] = found.pop("hiermem.subject")
    return found
