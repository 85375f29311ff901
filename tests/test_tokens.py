"""Token counters: exact, offline, lazy, and alive after any text."""

import base64
import hashlib
import inspect
import subprocess
import sys

import pytest
import tiktoken
import tiktoken_ext.openai_public
from hypothesis import given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import Memory, Message
from hiermem import tokens as module
from hiermem.data import vocabulary
from hiermem.errors import UsageError
from hiermem.protocols import TokenCounter
from hiermem.tokens import (
    ApproximateCounter,
    FunctionCounter,
    RunCounter,
    TiktokenCounter,
    default_counter,
    stretch_counter,
)

COUNTER = TiktokenCounter()
COUNTER.count("loads the vocabulary, so that no drawn example is charged for it")


def shipped() -> tiktoken.Encoding:
    return module._shipped()


def test_the_shipped_vocabulary_is_the_one_that_openai_publishes():
    """Broken if the package data is not o200k_base to the byte: all counts would be wrong."""
    lines = b"".join(
        base64.b64encode(token) + b" %d\n" % rank
        for token, rank in vocabulary(module.SHIPPED).ranks().items()
    )
    source = inspect.getsource(tiktoken_ext.openai_public.o200k_base)
    assert hashlib.sha256(lines).hexdigest() in source


def test_the_pattern_and_special_tokens_are_the_published_ones(monkeypatch):
    """Broken if tiktoken splits o200k_base differently from us."""
    monkeypatch.setattr(
        tiktoken_ext.openai_public, "load_tiktoken_bpe", lambda *_args, **_kwargs: {b"a": 0}
    )
    published = tiktoken_ext.openai_public.o200k_base()
    assert published["pat_str"] == module._O200K_PATTERN
    assert published["special_tokens"] == module._O200K_SPECIAL


ASCII = (
    st.text(st.characters(max_codepoint=127), max_size=200)
    | st.text(st.sampled_from("aAbBsStTlLvVrRdDmMeE' 1\n\r\t/.-"), max_size=80)
    | st.text(st.sampled_from(" \n\r\t\x0b\x0c\x1c\x1f\x00a1."), max_size=40)
)


@given(ASCII | st.text(st.characters(), max_size=200))
@drawn(600)
def test_any_text_is_counted_as_tiktoken_counts_it(text):
    """Broken if a lone surrogate or a special token raises, or ASCII is cut into other pieces."""
    assert COUNTER.count(text) == len(shipped().encode_ordinary(text))


@given(ASCII)
def test_nothing_but_entries_of_the_vocabulary_is_kept_of_a_counted_text(text):
    """Broken if a process goes on holding what was said in a conversation that it counted."""
    COUNTER.count(text)
    assert all(len(shipped().encode_ordinary(piece)) == 1 for piece in module._whole_pieces)


@given(st.text(st.characters(max_codepoint=127), min_size=1, max_size=64))
def test_a_piece_that_is_merged_here_has_the_tokens_that_tiktoken_gives_it(piece):
    """Broken, a count depends on what the process counted before."""
    assert module._merge(piece.encode()) == len(shipped()._encode_single_piece(piece))


def test_many_words_that_are_no_tokens_load_tiktoken(monkeypatch):
    """Broken, counting names is slow for ever."""
    monkeypatch.setattr(module, "_merged", [module._MOST_MERGED])
    monkeypatch.setattr(module, "_merge", None)
    assert COUNTER.count("Zoltan Xanthippe") == len(shipped().encode_ordinary("Zoltan Xanthippe"))


#: What a line end, a slash and white space do to the pieces around them.
LINES = st.text(
    st.sampled_from("aB's 1.-/\n\n\n\r\t \x1c\x85\u2028\u3000é’—。"),  # noqa: RUF001
    max_size=80,
)
TEXTS = ASCII | LINES | st.text(max_size=80)


@given(TEXTS, st.data())
@drawn(300)
def test_a_stretch_is_counted_as_a_text_of_its_own(text, data):
    """Broken if what stands around a passage changes its tokens."""
    text = text + data.draw(st.sampled_from(["", " and so on, said Ann.\n\n  Don't "])) + text
    for count in (COUNTER.count, RunCounter(COUNTER).count, len):
        stretches = stretch_counter(text, count)
        for _ in range(4):
            begin = data.draw(st.integers(0, len(text)))
            end = data.draw(st.integers(begin, len(text) + 2))
            assert stretches(begin, end) == count(text[begin:end])


@given(st.lists(TEXTS, max_size=6))
@drawn(300)
def test_a_text_counted_line_by_line_has_the_tokens_of_the_whole(texts):
    """Broken if a line that was counted before gives another text a wrong size."""
    counter = RunCounter(COUNTER)
    for text in (*texts, "\n".join(texts), *texts):
        assert counter.count(text) == COUNTER.count(text)
    assert counter.name == COUNTER.name


def test_a_counter_that_is_not_known_to_count_by_lines_counts_whole_texts():
    """Broken if a run counts otherwise than its session where the application gave the counter."""
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text) ** 2

    class Odd(TiktokenCounter):
        def count(self, text: str) -> int:
            return 2 * super().count(text)

    assert RunCounter(FunctionCounter(count, name="square")).count("a\nb") == 9
    assert asked == ["a\nb"]
    assert RunCounter(Odd()).count("a\nb c") == Odd().count("a\nb c")
    assert stretch_counter("one two", Odd().count)(0, 3) == 2


def test_what_a_run_remembers_of_its_texts_is_bounded(monkeypatch):
    """Broken if the memory of an update grows with the session."""
    monkeypatch.setattr(module, "_MOST_KEPT", 8)
    monkeypatch.setattr(module, "_MOST_NOTES", 8)
    counter = RunCounter(COUNTER)
    for number in range(100):
        text = f"x{number}q9z\nline {number}\nend"
        assert counter.count(text) == COUNTER.count(text)
        counter.notes[text] = number
        assert max(map(len, (counter._known, counter._parted, counter._notes))) <= 8 + 3


def test_the_default_is_one_offline_exact_counter():
    assert default_counter() is default_counter()
    assert default_counter().name == "tiktoken:o200k_base"
    for counter in (COUNTER, ApproximateCounter(), FunctionCounter(len, name="x")):
        assert isinstance(counter, TokenCounter)


def test_neither_an_import_nor_a_first_turn_in_plain_english_loads_tiktoken(tmp_path):
    """Broken if the first line, or a text of ours that is not ASCII, takes tiktoken's 80 MB."""
    code = (
        "import sys, importlib.util as u; s = u.find_spec('hiermem')\n"
        "sys.modules['hiermem'] = u.module_from_spec(s); import hiermem.tokens as t\n"
        "t.TiktokenCounter(); t.default_counter(); t.ApproximateCounter()\n"
        "print([m for m in ('tiktoken', 'mmap', 'numpy', 'requests') if m in sys.modules])\n"
        "t.default_counter().count('Hello Zoltan, how is pump P-7 today?')\n"
        "del sys.modules['hiermem']; from hiermem import Memory, Message\n"
        "with Memory.open(sys.argv[1]) as memory:\n"
        "    session = memory.session('s')\n"
        "    session.append(Message.user('Hello, how is pump P-7 today?'))\n"
        "    assert 'pump' in session.context(max_tokens=8_000).to_text()\n"
        "    print('tiktoken' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "memory.db")]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["[]", "False"]


def test_an_encoding_can_be_given_and_names_its_counts():
    tiny = tiktoken.Encoding(
        "tiny", pat_str=r"\w+|\s+", mergeable_ranks={bytes([n]): n for n in range(256)},
        special_tokens={},
    )  # fmt: skip
    counter = TiktokenCounter(tiny)
    assert counter.name == "tiktoken:tiny"
    assert counter.count("ab c") == 4


def test_an_unknown_or_unreachable_encoding_fails_where_it_is_asked_for(monkeypatch):
    with pytest.raises(UsageError, match="unknown"):
        TiktokenCounter("no_such_encoding")

    def unreachable(name):
        raise ConnectionError

    monkeypatch.setattr(tiktoken, "get_encoding", unreachable)
    with pytest.raises(UsageError, match="could not be loaded"):
        TiktokenCounter("cl100k_base")


BLANKS = [" ", "\t", "\u3000", "\n", "\r\n", " \n", "\x0b", "\u2028", "\x85"]


@pytest.fixture
def short_runs(monkeypatch):
    """Let runs of four blanks count as too long, so that small texts take the long way."""
    import re

    monkeypatch.setattr(module, "_LONG_RUN", 4)
    for name in ("_RUN_IN_LINE", "_RUN_OF_LINES"):
        pattern = getattr(module, name).pattern.replace("200000", "4")
        monkeypatch.setattr(module, name, re.compile(pattern))


def test_cutting_out_long_runs_keeps_the_count_exact(short_runs):
    """Broken if a cut around a long run of white space lies inside a piece of the pattern."""

    @given(
        st.lists(
            st.tuples(st.sampled_from(BLANKS), st.integers(1, 9)).map(lambda p: p[0] * p[1])
            | st.sampled_from(["a", "word", "!", "/", "//", "1", "12345", "'s", "ü", "漢", "x\n/"])
            | st.text(max_size=3),
            max_size=14,
        ).map("".join)
    )
    def exact(text):
        assert COUNTER.count(text) == len(shipped().encode_ordinary(text))

    exact()


@pytest.mark.thorough
def test_a_run_beyond_the_engines_limit_counts_like_its_parts():
    """Broken if the way past the limit counted differently from the way below it."""
    below, above = 999_000, 1_100_000
    per_token = 512 / 4
    assert COUNTER.count(" " * below + "a") == len(shipped().encode_ordinary(" " * below + "a"))
    assert abs(COUNTER.count(" " * above + "a") - above / per_token) < 5


SAMPLES = {
    "chat": "Hey Mel! Good to see you! I'm swamped with the kids & work. What's up with you?",
    "prose": "We agreed on 15 March that the refund of 59.90 EUR goes out once finance signs off.",
    "code": "def fold(self, items: list[int]) -> int:\n    return sum(i**2 for i in items)\n",
    "JSON": '{"id": 5512, "name": "user_17", "tags": ["a", "b"], "price": 59.9, "ok": true}',
    "base64": base64.b64encode(hashlib.sha512(b"seed").digest() * 3).decode(),
    "hex": hashlib.sha256(b"seed").hexdigest(),
    "URL": "https://example.org/a/b-c/d_e?f=1&g=two#h",
    "Chinese": "今天我们讨论了项目的进展情况并决定在下周三之前完成数据库迁移。",
    "Japanese": "昨日の会議で、データベースの移行を来週の水曜日までに終わらせることに決めました。",
    "Korean": "오늘 회의에서 데이터베이스 이전을 다음 주 수요일까지 끝내기로 결정했습니다.",
    "Russian": "Сегодня мы обсудили ход проекта и решили завершить перенос базы к среде.",
    "Greek": "Σήμερα συζητήσαμε την πρόοδο του έργου και αποφασίσαμε τη μεταφορά.",
    "Arabic": "ناقشنا اليوم تقدم المشروع وقررنا إكمال نقل قاعدة البيانات بحلول الأربعاء.",
    "Hebrew": "היום דנו בהתקדמות הפרויקט והחלטנו להשלים את העברת בסיס הנתונים.",
    "Hindi": "आज हमने परियोजना की प्रगति पर चर्चा की और स्थानांतरण पूरा करने का निर्णय लिया।",
    "Tamil": "இன்று திட்டத்தின் முன்னேற்றம் குறித்து விவாதித்தோம்.",
    "Thai": "วันนี้เราได้หารือเกี่ยวกับความคืบหน้าของโครงการ",
    "Turkish": "Bugün projenin ilerleyişini görüştük ve işi çarşambaya kadar bitireceğiz.",
    "Polish": "Dzisiaj omówiliśmy postęp projektu i zdecydowaliśmy się zakończyć migrację.",
    "Vietnamese": "Hôm nay chúng tôi đã thảo luận về tiến độ dự án.",
    "German": "Heute haben wir den Fortschritt besprochen; der Rückerstattungsbetrag stimmt.",
    "emoji": "🔥🔥🔥 ✅ ❌ ⚠️ 👍🏽🎉 great 👨\u200d👩\u200d👧 🇩🇪🇫🇷",
    "Amharic": "ዛሬ ስለ ፕሮጀክቱ ተወያይተናል",
}  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES.keys())
def test_the_approximate_counter_errs_upward_but_not_wildly(sample):
    """Broken if a budget kept by estimate would be overrun, or two thirds of it left unused."""
    true, estimate = COUNTER.count(sample), ApproximateCounter().count(sample)
    assert true <= estimate <= 3 * true


def test_the_approximate_counter_is_total():
    counter = ApproximateCounter()
    assert counter.count("") == 0
    assert all(1 <= counter.count(text) <= 3 for text in ("\x00", "\ud800", " ", "\uffff"))


class Given:
    """A counter of an application."""

    name = "given"

    def __init__(self, answer):
        self.answer = answer

    def count(self, _text):
        return self.answer


@pytest.mark.parametrize("answer", [-1, 1.5, 3.0, None, True, "7", float("nan")], ids=repr)
@pytest.mark.parametrize(
    "make", [Given, lambda answer: FunctionCounter(lambda _: answer, name="given")]
)
def test_an_answer_that_is_no_count_ends_the_append_before_anything_is_written(make, answer):
    """Broken, an adapter's slip makes a conversation unreadable that was accepted as stored."""
    with Memory.open(":memory:", token_counter=make(answer)) as memory:
        with pytest.raises(UsageError, match="given"):
            memory.session("s").append(Message.user("secret"))
        assert memory.sessions() == []


def test_a_counter_of_an_application_counts_as_it_says():
    assert FunctionCounter(len, name="chars").count("abc") == 3
    assert FunctionCounter(len, name="chars").name == "function:chars"
    with Memory.open(":memory:", token_counter=Given(5)) as memory:
        memory.session("s").append(Message.user("a"))
        assert memory.session("s").messages()[0].tokens == 5 + 4
        assert memory.sessions()[0].counter == "given"
    for wrong in ({"function": 7, "name": "x"}, {"function": len, "name": ""}):
        with pytest.raises(UsageError):
            FunctionCounter(**wrong)


# -- models that count otherwise

_AROUND = st.sampled_from(
    ["", "a", "A", " ", "\n", ".", "!", '"', "'s", "/", "x1", " the", "é", "..", "AB", "\r\n", "  "]
)
_RUNS_OF = [chr(number) for number in range(33, 127) if not chr(number).isdigit()]


@pytest.mark.parametrize("char", _RUNS_OF)
@given(_AROUND, _AROUND, st.integers(8_200, 12_000), _AROUND, _AROUND)
@drawn(3, 1)
def test_a_shortened_run_has_the_tokens_that_it_lost(char, first, second, length, third, fourth):
    """Counts decide where windows end; one that is off by one would differ from a provider's."""
    encoding = module._shipped()
    text = f"{first}{second}{char * length}{third}{fourth}"
    shorter, lost = module._without_long_runs(encoding, text)
    assert len(shorter) < len(text) or length < 9_300
    assert lost + len(encoding.encode_ordinary(shorter)) == len(encoding.encode_ordinary(text))


@pytest.mark.parametrize("unit", [".", "=", "x", "A", "漢", "…", "7", ".a"])
def test_long_texts_of_one_kind_are_counted_exactly(unit):
    text = f"before {unit * (210_000 // len(unit))} after"
    assert TiktokenCounter().count(text) == len(module._shipped().encode_ordinary(text))
