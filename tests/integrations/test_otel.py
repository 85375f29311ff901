"""Spans say what was done, under what, how much and whether it failed; never what was said."""

import subprocess
import sys

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from hiermem import LLMResponse, Memory, Message, UpdatePolicy, Usage
from hiermem.errors import BudgetTooSmallError, ModelError, UsageError
from hiermem.integrations import otel

CANARY = "zebra-canary"
#: What is a name or an id is in spans by intent.
SECRET = "sk-canary-key"


class Model:
    """A remote model that answers by rote, or fails with an error that tells everything."""

    name, remote, context_window, max_output_tokens = "stand-in", True, 100_000, 4_000

    def __init__(self, fails=False):
        self.fails, self.key = fails, SECRET

    async def complete(self, request):
        prompt = " ".join(message.content for message in request.messages)
        if self.fails:
            raise ModelError(f"{SECRET} {prompt}")
        text = "\n".join(f"- {CANARY} {word}" for word in prompt.split()[-30:])
        usage = Usage(input_tokens=1_000, output_tokens=70, cached_tokens=10)
        return LLMResponse(text, usage, model="stand-in-2026")


@pytest.fixture
def spans():
    """Return the spans made so far, each time it is called."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    otel.instrument(provider)
    yield exporter.get_finished_spans
    otel.uninstrument()
    provider.shutdown()


def talk(session, turns=30):
    for turn in range(turns):
        session.append(
            Message.user(f"{CANARY} {turn}: pump {turn % 7} ran at {2_900 + turn} rpm. " * 3),
            Message.assistant(f"{CANARY} noted, pump {turn % 7}."),
        )


def everything(session, memory):
    session.update()
    session.context(1_200, query=f"{CANARY} pump 3", system=CANARY)
    session.search(f"{CANARY} 12")
    session.recall(f"{CANARY} 12")
    memory.search(f"{CANARY} 12")
    session.extract()


def said(made):
    """Return everything of spans that leaves the process, as text."""
    return " ".join(each.to_json() for each in made)


def test_spans_tell_calls_runs_contexts_and_searches_and_no_text(spans):
    """Broken if a call could not be found in a trace, or a trace held what was said."""
    with Memory.open(":memory:", llm=Model()) as memory:
        session = memory.session("ada")
        talk(session)
        everything(session, memory)
    made = spans()
    by_id = {each.context.span_id: each for each in made}
    names = {each.name for each in made}
    assert names == {
        "chat stand-in", "hiermem update", "hiermem extraction", "hiermem context",
        "retrieval hiermem",
    }  # fmt: skip
    call = next(each for each in made if each.name == "chat stand-in")
    assert call.kind is SpanKind.CLIENT
    assert {k: v for k, v in call.attributes.items() if k.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "Model",
        "gen_ai.conversation.id": "ada",
        "gen_ai.request.model": "stand-in",
        "gen_ai.request.max_tokens": call.attributes["gen_ai.request.max_tokens"],
        "gen_ai.response.model": "stand-in-2026",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 1_000,
        "gen_ai.usage.output_tokens": 70,
        "gen_ai.usage.cache_read.input_tokens": 10,
    }
    run = by_id[call.parent.span_id]
    assert (run.name, run.attributes["hiermem.run"]) == (
        "hiermem update", call.attributes["hiermem.run"],
    )  # fmt: skip
    update = next(each for each in made if each.name == "hiermem update")
    calls = [each for each in made if each.parent and each.parent.span_id == update.context.span_id]
    assert update.attributes["hiermem.calls"] == len(calls) > 1
    context = next(each for each in made if each.name == "hiermem context")
    assert context.attributes["hiermem.messages"] == 60
    assert context.attributes["hiermem.coverage"] == 1.0
    assert 0 < context.attributes["hiermem.shown_messages"] < 60, "covered is not shown"
    quarters = context.attributes["hiermem.shown_by_quarter"]
    assert sum(quarters) * 15 == pytest.approx(context.attributes["hiermem.shown_messages"])
    assert context.attributes["hiermem.tokens"] <= context.attributes["hiermem.max_tokens"] == 1_200
    assert any(
        each.parent and each.parent.span_id == context.context.span_id
        for each in made
        if each.name == "retrieval hiermem"
    ), "the recall of a context is under it"
    assert CANARY not in said(made)
    assert SECRET not in said(made)


def test_errors_mark_their_spans_by_type_alone(spans):
    """Broken if a failure looked like success, or its text, which may hold a prompt, was sent."""
    policy = UpdatePolicy(retries=0)
    with Memory.open(":memory:", llm=Model(fails=True), update_policy=policy) as memory:
        session = memory.session("ada")
        talk(session)
        session.update()
        with pytest.raises(BudgetTooSmallError):
            session.context(20)
    failed = [each for each in spans() if each.status.status_code is StatusCode.ERROR]
    assert {(each.name, each.attributes["error.type"]) for each in failed} == {
        ("chat stand-in", "ModelError"), ("hiermem context", "BudgetTooSmallError"),
    }  # fmt: skip
    assert all(not each.events for each in failed)
    assert all(each.status.description == each.attributes["error.type"] for each in failed)
    assert CANARY not in said(spans())
    assert SECRET not in said(spans())


def test_what_is_no_provider_is_named():
    with pytest.raises(UsageError, match="must be a TracerProvider"):
        otel.instrument(5)


def test_spans_belong_to_what_the_application_does(spans):
    """Broken if a blocking call lost the trace that it was made in, on its way to the loop."""
    provider = TracerProvider()
    with Memory.open(":memory:") as memory:
        session = memory.session("ada")
        talk(session, 2)
        with provider.get_tracer("app").start_as_current_span("request") as request:
            session.context(1_200)
    [context] = spans()
    assert context.parent.span_id == request.get_span_context().span_id


def test_nothing_is_made_or_imported_without_it(spans):
    otel.uninstrument()
    with Memory.open(":memory:") as memory:
        session = memory.session("ada")
        talk(session)
        session.update()
        session.context(1_200)
    assert spans() == ()
    code = (
        "import sys; from hiermem import Memory, Message\n"
        "with Memory.open(':memory:') as memory:\n"
        "    session = memory.session('s'); session.append(Message.user('Hi'))\n"
        "    session.context(); session.search('hi')\n"
        "print(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
