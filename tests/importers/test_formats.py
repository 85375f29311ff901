"""Each format is recognised and read as it is meant, twice and when it has grown."""

from datetime import UTC, datetime
from unicodedata import normalize

import chat_files
import pytest
import variants
from chat_files import NOON
from hypothesis import example, given
from hypothesis import strategies as st
from sampling import drawn

from hiermem import AsyncMemory, FileError, Memory
from hiermem.importers import FORMATS, read_chats, survey

#: A time in Arabic digits, with marks of direction in its date.
ARABIC = (
    "[\u0661\u0663\u200f/\u0662\u200f/\u0662\u0660\u0662\u0665\u060c "
    "\u0663:\u0660\u0665:\u0660\u0669 \u0645] Ana: x"
)
NAMES = {
    "fine-tuning": "messages",
    "whatsapp on iOS": "whatsapp",
    "whatsapp on Android": "whatsapp",
}
ADDED = {"fine-tuning": 3}


def utc(*numbers):
    return datetime(*numbers, tzinfo=UTC)


def said_by(conversation):
    return [(m.name, m.content) for m in conversation.messages]


def said(conversation):
    """Return what of each message a reader sees."""
    return [(m.role, m.name, m.content) for m in conversation.messages]


@pytest.mark.parametrize("form", [each.name for each in FORMATS])
def test_each_format_is_read_as_it_was_agreed(form, tmp_path):
    """Broken if one of the ways in which a format is met is read otherwise than was reviewed."""
    assert len(variants.VARIANTS[form]) >= 10
    golden = variants.GOLDEN.read_text(encoding="utf-8")
    for label, name, content in variants.VARIANTS[form]:
        head = f"## {form}: {label}\n"
        wanted = golden.partition(head)[2].partition("\n\n")[0]
        found = "\n".join(variants.shown(variants.write(tmp_path, name, content)))
        assert head in golden
        assert found == wanted.rstrip("\n"), label


@pytest.mark.parametrize("name", chat_files.FORMATS)
def test_a_longer_file_is_read_as_it_was_agreed(name, tmp_path):
    golden = variants.GOLDEN.read_text(encoding="utf-8")
    wanted = golden.partition(f"## a longer file of {name}\n")[2].partition("\n\n")[0]
    assert "\n".join(variants.shown(chat_files.FORMATS[name](tmp_path))) == wanted


def test_what_was_read_once_is_not_read_again(tmp_path, every):
    """Broken if a second import of any file added a message, or a fork."""
    for form, each in variants.VARIANTS.items():
        for label, name, content in each[:: every(3)]:
            path = variants.write(tmp_path, name, content)
            with Memory.open(":memory:") as memory:
                memory.import_chats(read_chats(path))
                again = memory.import_chats(read_chats(path))
                assert (again.new, again.forks, again.changed) == (0, 0, 0), (form, label)


@pytest.mark.parametrize("name", chat_files.FORMATS)
def test_a_file_twice_adds_nothing_and_a_longer_one_adds_what_is_new(name, tmp_path):
    """Broken if an import could not be repeated, or a newer export doubled a conversation."""
    build = chat_files.FORMATS[name]
    with Memory.open(":memory:") as memory:
        path = build(tmp_path)
        first = memory.import_chats(read_chats(path))
        held = survey(read_chats(path))
        assert held.formats == (NAMES.get(name, name),)
        assert (first.new, first.held, first.changed) == (held.messages, 0, 0)
        again = memory.import_chats(read_chats(path))
        assert (again.new, again.held, again.forks, again.changed) == (0, held.messages, 0, 0)
        longer = memory.import_chats(read_chats(build(tmp_path, more=True)))
        assert (longer.new, longer.held, longer.forks, longer.late) == (
            ADDED.get(name, 1), held.messages, 0, 0,
        )  # fmt: skip
        assert memory.check().ok


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("[2025-02-13, 10:00:01] Ana: x", utc(2025, 2, 13, 10, 0, 1)),
        ("13/02/2025, 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13/02/2025 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13/02/25 10:00 p. m. - Ana: x", utc(2025, 2, 13, 22, 0)),
        ("[13/2/25, 12:05:09 a.\u00a0m.] Ana: x", utc(2025, 2, 13, 0, 5, 9)),
        ("13/02/2025 à 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("[13.2.2025 klo 10.00.01] Ana: x", utc(2025, 2, 13, 10, 0, 1)),
        ("[13. 2. 2025 10:00:01] Ana: x", utc(2025, 2, 13, 10, 0, 1)),
        ("13-02-2025 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13.02.25, 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("2025/2/13 下午3:05 - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("[2025/02/13 10:00:01] Ana: x", utc(2025, 2, 13, 10, 0, 1)),
        ("2025년 2월 13일 오후 3:05, Ana : x", utc(2025, 2, 13, 15, 5)),
        ("2025. 2. 13. 오후 3:05, Ana : x", utc(2025, 2, 13, 15, 5)),
        ("13\u200f/2\u200f/2025، 3:05 م - Ana: x", utc(2025, 2, 13, 15, 5)),
        (ARABIC, utc(2025, 2, 13, 15, 5, 9)),
        ("2025-02-13, 3:05:09 PM: Ana: x", utc(2025, 2, 13, 15, 5, 9)),
        ("[13.02.25, 3:05 nachm.]: Ana: x", utc(2025, 2, 13, 15, 5)),
        ("(2/13/2025 15:05) Ana: x", utc(2025, 2, 13, 15, 5)),
        ("[2025-02-13 3:05 p.m.] Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13/2/25, 3:05 بعد دوپہر - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13/2/25, رات 9:05 - Ana: x", utc(2025, 2, 13, 21, 5)),
        ("13/2/2568, 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13.02.25 г., 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13.2.2025 во 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13-02-2025 om 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13. 2. 2025 o 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13.02.2025. plkst. 10:00 - Ana: x", utc(2025, 2, 13, 10, 0)),
        ("13/2/2025, 3:05 μ.μ. - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13/02/25, 3:05 PTG - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13.2.2025 klo 3.05 ip. - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13.2.2025 3:05 odp. - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13/02/2025, 3:05 CH - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13.2.2025, 3:05 אחה״צ - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13/2/2025, 3:05 ب.ظ. - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13.2.2025, 3:05 e pasdites - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13/2/2025 3:05 หลังเที่ยง - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13/2/25, பிற்பகல் 3:05 - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13/2/25, 3:05 অপরাহ্ণ - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("13.2.2025, 3:05 пп - Ana: x", utc(2025, 2, 13, 15, 5)),
        ("2025/2/13 凌晨12:05 - Ana: x", utc(2025, 2, 13, 0, 5)),
    ],
)  # fmt: skip
def test_whatsapp_in_many_locales(line, at, tmp_path):
    """Broken if a chat could not be read on account of the phone's language."""
    path = chat_files.write(tmp_path / "wa.txt", line + "\n")
    (chat,) = read_chats(path)
    assert chat.format == "whatsapp"
    assert said(chat) == [("user", "Ana", "x")]
    assert chat.messages[0].created_at == at


@pytest.mark.parametrize(
    ("dates", "wanted"),
    [
        (["2/1/25", "2/3/25", "3/1/25"], (2025, 2, 1)),
        (["1/2/25", "3/2/25", "1/3/25"], (2025, 2, 1)),
        (["02/01/2025"], (2025, 1, 2)),
    ],
)
def test_the_order_of_day_and_month_is_seen_from_the_file(dates, wanted, tmp_path):
    text = "".join(f"{date}, 10:00 - Ana: x\n" for date in dates)
    path = chat_files.write(tmp_path / "wa.txt", text)
    (chat,) = read_chats(path)
    at = chat.messages[0].created_at
    assert (at.year, at.month, at.day) == wanted
    doubt = [note for note in chat.notes if "two ways" in note]
    assert len(doubt) == (len(dates) == 1), "a guess is said, a certainty is not"
    (other,) = read_chats(path, dates="mdy")
    assert other.messages[0].created_at.month == int(dates[0].split("/")[0])


def test_speakers_that_are_named_and_no_others_begin_a_message(tmp_path):
    path = chat_files.transcript(tmp_path)
    (chat,) = read_chats(path, speakers=["Ada", "Ben"], assistants=["ben"])
    assert [(m.role, m.name) for m in chat.messages] == [
        ("user", "Ada"), ("assistant", "Ben"), ("user", "Ada"), ("assistant", None),
    ]  # fmt: skip


def test_small_letters_are_a_name_where_the_first_speaker_has_one(tmp_path):
    low = chat_files.write(tmp_path / "low.txt", "ada: hi\nben: hello\n")
    high = chat_files.write(tmp_path / "high.txt", "Ada: hi\nben: hello\n")
    assert [m.name for m in next(read_chats(low)).messages] == ["ada", "ben"]
    assert [m.name for m in next(read_chats(high)).messages] == ["Ada"]
    roles = chat_files.write(tmp_path / "roles.txt", "user: hi\nassistant: hello\n")
    assert [m.role for m in next(read_chats(roles)).messages] == ["user", "assistant"]


def test_an_image_that_is_too_large_is_left_out_and_its_message_kept(tmp_path):
    """Broken if one screenshot refused a whole session."""
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 4_500_000}
    content = [{"type": "text", "text": "See"}, {"type": "image", "source": source}]
    given = {"role": "user", "content": content, "created_at": "2026-01-02T08:00:00Z"}
    path = chat_files.dump(tmp_path / "big.json", [given])
    (chat,) = read_chats(path)
    assert chat.messages[0].content[1].text == "[image or file left out]"
    assert chat.notes == {"images and files that are too large left out": 1}


@pytest.mark.parametrize("form", [each.name for each in FORMATS])
def test_no_id_holds_the_name_that_a_file_has(form, tmp_path):
    """Broken, a person's name stays in what an application keeps of a deleted session."""
    for label, name, content in variants.VARIANTS[form]:
        path = variants.write(tmp_path, name, content)
        found = []
        for written in ("NFC", "NFD"):  # as a Mac and the others write it
            path = path.rename(
                path.with_name(normalize(written, "Zo\u00eb Kowalski") + path.suffix)
            )
            found.append([chat.id for chat in read_chats(path)])
        assert found[0] == found[1], label
        assert not any("kowalski" in each.casefold() for each in found[0]), label


async def test_an_import_tells_its_progress_and_waits_in_the_asynchronous_face(tmp_path):
    seen = []
    async with AsyncMemory.open(":memory:") as memory:
        chats = read_chats(chat_files.fine_tuning(tmp_path))
        report = await memory.import_chats(chats, on_progress=seen.append)
        assert [each.conversations for each in seen] == [1, 2, 3]
        assert (seen[-1].new, report.new, len(report.sessions)) == (9, 9, 3)


@pytest.mark.parametrize(
    ("at", "told"),
    [("2026-02-02T08:15:00", True), ("2026-02-02T08:15:00Z", False),
     ("2026-02-02T08:15:00+01:00", False)],
)  # fmt: skip
def test_a_time_without_a_zone_is_said_and_no_other(at, told, tmp_path):
    """Broken if a reader could not know that times were taken as UTC."""
    talk = chat_files.write(tmp_path / "talk.txt", f"[{at}] Ada: Hi\n[{at}] Ben: Hi\n")
    chat = {"role": "user", "content": "Hi", "timestamp": at}
    listed = chat_files.dump(tmp_path / "chat.json", [chat, chat])
    note = "conversations whose times name no zone, read as UTC"
    for path in (talk, listed):
        assert survey(read_chats(path)).notes == ({note: 1} if told else {})
        assert survey(read_chats(path, timezone="Europe/Berlin")).notes == {}


CHAT = {"sender": "creator.name", "text": "text", "time": "created_date", "key": "message_id"}


@pytest.mark.parametrize(
    "at",
    [
        "Tuesday, 3 May 2022 at 22:11:12 UTC", "Tuesday, May 3, 2022 at 10:11:12\u202fPM UTC",
        "Dienstag, 3. Mai 2022 um 22:11:12 UTC", "mardi 3 mai 2022 à 22:11:12 UTC",
        "martes, 3 de mayo de 2022, 22:11:12 UTC", "wtorek, 3 maja 2022 22:11:12 UTC",
        "2022. május 3., kedd 22:11:12 UTC", "вторник, 3 мая 2022 г. в 22:11:12 UTC",
        "2022年5月3日火曜日 22:11:12 UTC", "2022년 5월 3일 화요일 오후 10시 11분 12초 UTC",
        "2022年5月3日星期二 UTC 下午10:11:12", "lúc 22:11:12 UTC Thứ Ba, 3 tháng 5, 2022",
        "יום שלישי, 3 במאי 2022 בשעה 22:11:12 UTC", "tiistai 3. toukokuuta 2022 klo 22.11.12 UTC",
        "วันอังคารที่ 3 พฤษภาคม พุทธศักราช 2565 เวลา 22 นาฬิกา 11 นาที 12 วินาที UTC",
        "04.05.2022, 00:11:12 MESZ", "Tue, 03 May 2022 15:11:12 -0700", "mar, 3 may 2022 22:11:12Z",
    ],
)  # fmt: skip
def test_a_date_in_words_is_read_in_the_language_of_the_export(at, tmp_path):
    """Broken if a chat of Google's were dated at its import, or a day late."""
    said = {"creator": {"name": "Ann"}, "text": "hi", "created_date": at, "message_id": "1"}
    path = chat_files.dump(tmp_path / "messages.json", {"messages": [said]})
    with pytest.raises(FileError) as refused:
        next(read_chats(path))
    (chat,) = read_chats(path, fields=CHAT)
    assert ",".join(f"{name}={where}" for name, where in CHAT.items()) in str(refused.value)
    assert chat.messages[0].created_at == utc(2022, 5, 3, 22, 11, 12)


@pytest.mark.parametrize("offset", ["-24", "-9959", "+30:00"])
def test_an_offset_that_no_zone_has_is_passed_over(offset, tmp_path):
    """Broken, one odd date ends the import of a file with a traceback."""
    said = {"text": "hi", "at": f"3 May 2022 22:11:12 UTC{offset}"}
    path = chat_files.dump(tmp_path / "messages.json", [said])
    (chat,) = read_chats(path, fields={"text": "text", "time": "at"})
    assert chat.messages[0].created_at == utc(2022, 5, 3, 22, 11, 12)


WORDS = st.lists(st.sampled_from(["ok", "café", "Größe", "señor ¿qué?", "it’s “so” – €5", "привет",
                                  "今日は", "❤️🎉"]), min_size=2, max_size=6)  # fmt: skip


@given(WORDS, st.booleans())
@example(["café", "it shows cafÃ© instead"], False)
@drawn(60)
def test_messengers_texts_are_mended_and_right_ones_stay(tmp_path, words, escaped):
    """Broken if an umlaut came in as two signs, in a name, a text or a shared link's words."""

    def written(text):
        return text.encode().decode("latin-1") if escaped else text

    said = [{"sender_name": written(f"{word} M."), "timestamp_ms": (NOON + n) * 1000,
             **({"content": written(word)} if n else {"share": {"share_text": written(word)}})}
            for n, word in enumerate(words)]  # fmt: skip
    path = chat_files.dump(tmp_path / "message_1.json", {"participants": [], "messages": said})
    fields = {"sender": "sender_name", "text": "content", "time": "timestamp_ms"}
    (chat,) = read_chats(path, fields=fields)
    assert said_by(chat) == [(f"{word} M.", word) for word in words]


@pytest.mark.parametrize(
    "line",
    ["[26.10.25, 0{}:00] {}: x", "26/10/2025, 0{} - {}: x", "[2025-10-26 0{}] {}: x",
     "2025-10-26 0{}:00\t{}\tx", "26.10.25,0{},{},x"],
    ids=["iOS", "Android", "text", "IRC", "map"],
)  # fmt: skip
def test_an_hour_that_comes_twice_runs_forwards(line, tmp_path):
    """Broken if the night in which clocks are set back were read in another order than it had."""
    clocks = ["1:30", "2:10", "2:50", "2:20", "2:55", "3:05"]
    table = line.endswith(",x")
    text = "".join(line.format(clock, "AnaBen"[n % 2 * 3 :][:3]) + "\n"
                   for n, clock in enumerate(clocks))  # fmt: skip
    text = text.replace("26.10.25,0", "2025-10-26 0") if table else text
    path = chat_files.write(tmp_path / "night.txt", ("at,who,text\n" if table else "") + text)
    fields = {"text": "text", "sender": "who", "time": "at"} if table else None
    (chat,) = read_chats(path, timezone="Europe/Berlin", fields=fields)
    at = [m.created_at.astimezone(UTC) for m in chat.messages]
    assert " ".join(f"{each:%H:%M}" for each in at) == "23:30 00:10 00:50 01:20 01:55 02:05"
