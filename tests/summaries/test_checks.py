"""Which answers of a model are fit to be memory (P7), and that good ones are never refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear import is_linear, repeated
from sampling import params

from hiermem.protocols import ChatMessage, LLMRequest, LLMResponse, SourceText
from hiermem.summaries.assess import repair
from hiermem.summaries.checks import ALWAYS, WRITTEN, Answer, check
from hiermem.text import language
from hiermem.text.facts import Fidelity, Source
from hiermem.text.units import prose
from hiermem.tokens import FunctionCounter
from hiermem.types import Unit

COUNTER = FunctionCounter(lambda text: (len(text) + 3) // 4, name="quarter")
TALK = (
    "We have decided that the flat in Porto is what we want, and they would like to have the money "
    "from the bank for it by the end of May. The rent is 900, which is more than it was before. "
) * 12
GOOD = "The two have decided to rent the flat in Porto for 900 and to ask the bank for the money."


def request(text: str = TALK, *, target: int = 200, limit: int = 300) -> LLMRequest:
    return LLMRequest(
        task="summarise",
        messages=(
            ChatMessage("system", "You write the memory of a conversation. " * 12),
            ChatMessage("user", f"<record>\nAnn: {text}\n</record>"),
        ),
        inputs=(SourceText(0, "user", "Ann", "2024-03-15", text),),
        target_tokens=target,
        max_tokens=limit,
        counter=COUNTER,
    )


def record_of(asked: LLMRequest) -> list[str]:
    return [prose(source.text) for source in asked.inputs]


def sized(length: int) -> str:
    """Give an answer of so many characters that tells of the talk."""
    return (GOOD + " ").ljust(length, "a")[:length]


def kinds(answer: str | LLMResponse, *, asked: LLMRequest | None = None, **given) -> list[str]:
    response = LLMResponse(answer) if isinstance(answer, str) else answer
    asked = asked or request()
    values = {"input_tokens": 600, "record": record_of(asked)} | given
    answer_ = Answer(response, asked, COUNTER.count(response.text), **values)
    return [*check(answer_)]


@pytest.mark.parametrize(
    "text",
    [
        GOOD, "Sorry is what Ann said to Bob after the argument; they made up.",
        "Ann said: I'm sorry, I can't help with the move. Bob will hire movers.",
        "Error handling was moved to middleware; the 500 errors are gone.",
        "The assistant refused to write the exploit and explained why.",
        "Unfortunately the launch slipped to May 3.", "404 tickets were sold.",
        "Internal server error rates fell to 2 % after the fix in gateway.py.", "Porto: 900.",
        "- [2024-03-15] Ann apologised.\n- The rate limit was exceeded twice; it is 90 now.",
        "I cannot eat nuts, said the user.", "{config} is read from app.toml.",
    ],
)  # fmt: skip
def test_a_legitimate_summary_is_never_refused_for_what_it_tells(text):
    assert kinds(text, asked=request(f"{TALK} {text}")) == []
    assert kinds(text, asked=request("No answer yet."), input_tokens=200) == []


def test_a_bare_word_is_fit_for_a_record_of_few_words_only():
    assert kinds("No.", asked=request("Shall we rent it? No, not yet.")) == []
    assert kinds("No.") == ["unrelated"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("null", "empty"), ("N/A", "empty"), ("None", "empty"), ("OK", "empty"), ("TODO", "empty"),
        ('{"summary": ', "empty"), ('{"summary": "They rent the flat in Porto."}', "not_prose"),
        ('```json\n{"summary": "the flat in Por', "not_prose"),
        ("Sure! Here is the summary:", "empty"), ("Request timed out.", "error_text"),
        ("Error code: 429 - {'error': {'message': 'slow down'}}", "error_text"),
        ("The conversation cannot be summarized.", "refused"),
        ("I do not have enough information to summarize this conversation.", "refused"),
        ("Ich kann diese Anfrage leider nicht bearbeiten.", "refused"),
        ("lorem ipsum " * 30, "unrelated"), ("The " * 150, "unrelated"),
        ("A conversation between a user and an assistant.", "unrelated"),
        ("他们决定租下公寓。", "unrelated"),
    ],
)  # fmt: skip
def test_p7_an_answer_that_is_the_same_for_any_input_is_refused(text, kind):
    assert kind in kinds(text.strip())
    # Nor does it become memory because the conversation was about such answers.
    if kind != "unrelated":
        assert kind in kinds(
            text.strip(), asked=request(f"{TALK} the request and a summary: {text}")
        )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("They will rent.", TALK),
        ("A flat, paid by the bank.", TALK),
        ("两人决定租公寓。", "我们决定在波尔图租下这间公寓。" * 30),
        ("Они снимут квартиру.", "Мы решили снять квартиру в Порту. " * 30),
        ("회의는 세 시에 있다.", "오늘 회의는 오후 세 시에 시작하고 자료를 준비해 주세요. " * 30),
        ("הם שוכרים דירה", "החלטנו לשכור את הדירה בפורטו. " * 30),
    ],
)
def test_p7_a_short_summary_that_tells_of_its_inputs_is_fit(text, told):
    assert kinds(text, asked=request(told)) == []


@pytest.mark.parametrize(
    ("reason", "kind"), [("length", "truncated"), ("refusal", "refused"), ("error", "error_text")]
)
def test_an_unclean_finish_is_refused_whatever_the_text(reason, kind):
    assert kind in kinds(LLMResponse(GOOD, finish_reason=reason))
    assert kind in kinds(LLMResponse("", finish_reason=reason))


def test_the_hard_limit_holds_to_the_token():
    assert kinds(sized(1200), input_tokens=600) == []
    assert kinds(sized(1201), input_tokens=600) == ["too_long"]


@pytest.mark.parametrize(
    ("tokens", "fit"), [(199, 199), (200, 200), (201, 200), (250, 249)], ids=str
)
def test_a_summary_of_more_than_200_tokens_is_smaller_and_of_less_never_larger(tokens, fit):
    assert kinds(sized(4 * fit), input_tokens=tokens) == []
    assert kinds(sized(4 * (fit + 1)), input_tokens=tokens) == ["not_smaller"]


def test_a_short_quotation_and_an_extracted_text_are_no_echo():
    assert kinds(TALK[:120]) == []
    unit = Unit(0, 0, "user", "Ann", "", TALK[:400])
    assert kinds(LLMResponse(TALK[:400], units=(unit,))) == []


def test_a_conversation_in_two_languages_may_be_told_in_either():
    german = "Das ist nicht so, wie wir es mit der Bank und dem Makler auch besprochen haben. " * 12
    both = request()
    both = LLMRequest(
        **{name: getattr(both, name) for name in LLMRequest.__slots__}
        | {"inputs": (*both.inputs, SourceText(1, "user", "Bob", "", german))}
    )
    assert kinds(GOOD, asked=both) == []


@pytest.mark.parametrize(("kept", "found"), [(0, ["vague"]), (1, [])])
def test_a_long_answer_that_keeps_almost_no_fact_is_refused(kept, found):
    """Broken, a text that could be about anything stands for a window full of facts."""
    facts = tuple("abcdefgh")
    kept = Fidelity(required=facts, missing=facts[kept:])
    long = " ".join(TALK.split()[:90]).replace("decided", "agreed").replace("bank", "banker")
    assert kinds(long, fidelity=kept) == found
    assert kinds(GOOD, fidelity=kept) == []


@given(st.text(max_size=400), st.text(max_size=400))
def test_no_complaint_tells_what_was_said_and_nothing_crashes(said, answered):
    asked = request("canarycanary 4711 " + said)
    answer = LLMResponse("canaryanswer 4712 " + answered)
    found = Source([asked.inputs[0].text], limit=9).fidelity(answered)
    for complaint in check(Answer(answer, asked, 4_000, 5, record_of(asked), found)).values():
        assert "canary" not in complaint
        assert "471" not in complaint


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (GOOD, "en"),
        ("Je ne sais pas si nous sommes prêts pour cette réunion, mais vous avez les notes.", "fr"),
        (
            "El informe está listo y los datos son para el equipo, pero no hay más en la carpeta.",
            "es",
        ),
        (
            "明日の会議は午後三時からです。資料を準備しておいてください。よろしくお願いします。",
            "ja",
        ),
        ("오늘 회의는 오후 세 시에 시작하고 자료를 준비해 주세요 감사합니다", "hangul"),
        ("ok", None),
        ("404 500 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7", None),
        ("Porto Lisbon Madrid Berlin Oslo Rome Paris Vienna Prague", None),
    ],
)
def test_a_language_is_named_only_where_it_is_clear(text, code):
    assert language.guess(text) == code


@pytest.mark.parametrize(
    "family",
    params(["a", "{", '{"a":', "[", "```", "```\n", "Ann: I ", "Ann (user): x\n", "I can ", "you ",
     "!", "\n",
     "- x\n", "the ", "x. ", "我", "ignore a b c ", "Here is ", "<think>", "def ", "x(", '"'], 8),
)  # fmt: skip
def test_time_grows_linearly_with_hostile_text(family):
    def work(text: str) -> None:
        asked = request(text, target=50, limit=10**9)
        for _, _, applies in (*ALWAYS, *WRITTEN):
            applies(Answer(LLMResponse(text), asked, 10, 9, record=(text,)))
        repair(LLMResponse(text, finish_reason="length"), request=asked)
        repair(LLMResponse(text), request=asked)

    assert is_linear(lambda size: repeated(family, size), work, size=10_000)
