"""Decides what a message's text is, what it costs, where it may be cut, which texts are the same.

All results are functions of the message, the counter and the unit, so that a message weighs the
same at any time and place of measuring. ``body`` is the text that summaries and character offsets
refer to; ``message_tokens`` is the cost of showing the message unchanged. Whether a message *must*
be cut, and what becomes of the slices, is decided by the fold.

A hash covers everything that can change the result, and nothing more. Session, index, title and
participants are left out on purpose, so a fork or a re-pack finds the summaries that were made
before. Every hash is tagged with its method, so hashes of a later method can be stored alongside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final, Literal

from hiermem.convert.request import hidden, sent_call, sent_name, understood
from hiermem.errors import InvalidMessageError
from hiermem.protocols import TokenCounter
from hiermem.text.fence import escape
from hiermem.text.slices import Piece, char_points, token_points
from hiermem.types import (
    FilePart,
    ImagePart,
    JsonPart,
    Message,
    Part,
    StoredMessage,
    TextPart,
    ToolCall,
)
from hiermem.types.message import one_line, part_text, shown_reference
from hiermem.types.message import speaker as speaker  # noqa: PLC0414 - who is quoted

Unit = Literal["tokens", "chars"]

#: Tokens that a provider adds to each message for its role and frame.
MESSAGE_OVERHEAD = 4
#: Tokens of an image: the low-detail price, and the price of an image of ordinary size.
IMAGE_LOW = 85
IMAGE_HIGH = 765
#: Tokens of a file in addition to those of its name.
FILE_OVERHEAD = 64
#: Tokens of media in a part that is kept as it came, by a word in the name of its kind; the first
#: that fits counts. Other data (signatures, encrypted reasoning) has the price of OTHER_DATA.
MEDIA = {
    "audio": 500,
    "video": 1_500,
    "image": IMAGE_HIGH,
    "screenshot": IMAGE_HIGH,
    "computer": IMAGE_HIGH,
    "file": FILE_OVERHEAD,
    "document": FILE_OVERHEAD,
}
OTHER_DATA = 64
#: The media that have their price also if they are referred to by an address.
_ALWAYS = ("audio", "video", "image", "screenshot")
#: A text of base64 is data if it has so many characters.
_LEAST_DATA = 256
#: No program breaks base64 into shorter lines.
_LEAST_WIDTH = 60
_BASE64 = re.compile(r"[A-Za-z0-9+/_=-]*+")

_HASH_DIGITS = 40
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def _plain(value: object) -> Any:
    """Return the plain form of a foreign mapping or sequence type, for ``json``."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(type(value).__name__)


_ENCODER = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain
)


def canonical_json(value: Any) -> str:
    """Write a JSON value in canonical form: keys sorted, no white space, non-ASCII unescaped.

    Raises InvalidMessageError for a value that is not JSON.

    >>> canonical_json({"b": 1, "a": ["ü"]})
    '{"a":["ü"],"b":1}'
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessageError(
            f"a value cannot be written as JSON ({type(error).__name__}); use mappings with text "
            "keys, lists, texts, finite numbers, booleans and None"
        ) from None


def _call_price(call: ToolCall, counter: TokenCounter) -> int:
    """Count a call as a request shows it: canonical JSON with the called function nested in it."""
    call = sent_call(call)
    kind, field = ("custom", "input") if call.type == "custom" else ("function", "arguments")
    shown = {field: call.arguments, "name": call.name}
    return counter.count(_ENCODER.encode({kind: shown, "id": call.id, "type": kind}))


def body(message: Message) -> str:
    """Return the text of a message, which summaries and character offsets refer to.

    Text parts and placeholders for other parts stand on lines of their own, and tool calls follow
    as ``name(arguments)``. The body of a plain text message is its content, the same object.

    >>> body(Message.user("Hello"))
    'Hello'
    """
    content = message.content
    if isinstance(content, str):
        if not message.tool_calls:
            return content
        texts = [content] if content else []
    else:
        texts = [part_text(part) for part in content]
    texts.extend(_call_text(call) for call in message.tool_calls)
    return "\n".join(texts)


def _call_text(call: ToolCall) -> str:
    """Return a call in a body, with its arguments in canonical form where they are JSON."""
    try:
        arguments = _ENCODER.encode(json.loads(call.arguments))
    except (ValueError, RecursionError):
        arguments = call.arguments
    return f"{one_line(call.name)}({arguments})"


def guarded(message: Message, echoes: Iterable[tuple[int, int]] = ()) -> Message:
    """Return a message as it is shown outside of a record: nothing in it reads like one.

    Whatever looks like a line of the library's own gets a backslash (``fence.escape``), save the
    ``echoes`` in the body, which are verified fences. Returns the same object if there is nothing.
    """
    whole = body(message)
    own = [whole[begin:end] for begin, end in echoes]
    given, content = message.content, message.content
    if isinstance(given, str):
        content = _guarded_text(given, own)
    else:
        content = tuple(_guarded_part(part, own) for part in given)
        said = "".join(part_text(understood(part)) for part in content if not hidden(part))
        if _guarded_text(said, own) != said:  # what stands in two parts reads like one
            content = _guarded_text("\n".join(map(part_text, given)), own)
    made = replace(
        message,
        content=content,
        name=message.name and escape(message.name),
        tool_calls=tuple(map(_guarded_call, message.tool_calls)),
        tool_call_id=message.tool_call_id and escape(message.tool_call_id),
    )
    return message if made == message else made


def _guarded_text(text: str, own: Sequence[str]) -> str:
    """Escape a text, save the verified fences in it."""
    if not own:
        return escape(text)
    first, *others = own
    return first.join(_guarded_text(part, others) for part in text.split(first))


def _guarded_part(part: Part, own: Sequence[str]) -> Part:
    """Return a part as it is shown; as text if its address or placeholder reads like a record."""
    if isinstance(part, TextPart):
        text = _guarded_text(part.text, own)
        return part if text == part.text else TextPart(text)
    if hidden(part):  # signed, and not for the eye
        return part
    if isinstance(part, JsonPart):
        data = _guarded_value(part.data)
        part = part if data == part.data else JsonPart(data)
    elif isinstance(part, FilePart) and part.name is not None:
        part = replace(part, name=escape(part.name))
    text = part_text(part)
    address = "" if isinstance(part, JsonPart) else part.reference
    if address.startswith("data:"):
        address = ""
    unlike = escape(text) == text and escape(address) == address
    return part if unlike else TextPart(escape(text))


def _guarded_value(value: Any) -> Any:
    """Escape every text in a JSON value."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Mapping):
        return {escape(name): _guarded_value(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_guarded_value(each) for each in value]
    return value


def _guarded_call(call: ToolCall) -> ToolCall:
    """Return a call as it is shown; its arguments as JSON if only their values look so."""
    arguments = call.arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        arguments = escape(arguments)
    else:
        if (changed := _guarded_value(value)) != value:
            arguments = json.dumps(changed, ensure_ascii=False)
    return replace(call, id=escape(call.id), name=escape(call.name), arguments=arguments)


def day(created_at: datetime) -> str:
    """Return the date under which a message is quoted, in UTC.

    >>> day(datetime(2024, 3, 15, 9, 30, tzinfo=UTC))
    '2024-03-15'
    """
    at = created_at if created_at.tzinfo is UTC else created_at.astimezone(UTC)
    return at.date().isoformat()


def _part_price(part: Part, counter: TokenCounter) -> int | None:
    """Return the tokens of a part that is not text, by ``message_tokens``' rule; None for text."""
    if isinstance(part, TextPart):
        return None
    if isinstance(part, ImagePart):
        return IMAGE_LOW if part.detail == "low" else IMAGE_HIGH
    if isinstance(part, FilePart):
        return FILE_OVERHEAD + counter.count(shown_reference(part.name or part.reference))
    try:
        shown, price = _without_data(part.data, "")
    except RecursionError:
        raise InvalidMessageError("a part is nested too deeply to be written as JSON") from None
    kind = str(part.data.get("type", "")).casefold()
    if not price:
        price = next((MEDIA[word] for word in _ALWAYS if word in kind), 0)
    return counter.count(canonical_json(shown)) + price


def _without_data(value: Any, kind: str) -> tuple[Any, int]:
    """Return a JSON value without the data in it, and the price of that data.

    The kind of data is the type of the object that it is in, or of one around it.
    """
    if isinstance(value, str):
        if not _is_data(value):
            return value, 0
        folded = kind.casefold()
        return "", next((price for word, price in MEDIA.items() if word in folded), OTHER_DATA)
    if isinstance(value, Mapping):
        own = value.get("type")
        kind = f"{own} {kind}" if isinstance(own, str) else kind
        found = {name: _without_data(each, kind) for name, each in value.items()}
        return {name: each for name, (each, _) in found.items()}, sum(p for _, p in found.values())
    if isinstance(value, (list, tuple)):
        each = [_without_data(one, kind) for one in value]
        return [one for one, _ in each], sum(price for _, price in each)
    return value, 0


def _is_data(text: str) -> bool:
    """Return whether a text is a data URL or long base64, on one line or on equal lines."""
    if len(text) < _LEAST_DATA:
        return False
    if text[:5].lower() == "data:":
        return True
    lines = text.split()
    width = len(lines[0]) if lines else 0
    equal = all(len(line) == width for line in lines[:-1]) and len("".join(lines[-1:])) <= width
    return equal and width >= _LEAST_WIDTH and all(map(_BASE64.fullmatch, lines))


def _frame(message: Message, *, unit: Unit, counter: TokenCounter) -> int:
    """Return the fixed cost of every message and slice: the speaker's name and the role."""
    name = message.name
    if unit == "chars":
        return len(name) if name else 0
    return MESSAGE_OVERHEAD + (counter.count(sent_name(name)) if name else 0)


def message_tokens(message: Message, counter: TokenCounter) -> int:
    """Count a message as shown unchanged, in tokens.

    The sum holds content, name, each tool call as canonical JSON of its chat shape, and
    MESSAGE_OVERHEAD for the role. An image is 85 tokens where its detail is "low" and 765
    otherwise; a file is 64 and the tokens of its name (or reference); an opaque part is its
    canonical JSON, in which data (a data URL, or base64 of 256 characters and more) has a fixed
    price by its kind (``MEDIA``).
    """
    content = message.content
    if isinstance(content, str):
        tokens = MESSAGE_OVERHEAD + counter.count(content) if content else MESSAGE_OVERHEAD
    else:
        tokens = MESSAGE_OVERHEAD
        for part in content:
            price = _part_price(part, counter)
            tokens += counter.count(part_text(part)) if price is None else price
    if message.name:
        tokens += counter.count(sent_name(message.name))
    for call in message.tool_calls:
        tokens += _call_price(call, counter)
    return tokens


def message_size(
    message: Message,
    *,
    unit: Unit,
    counter: TokenCounter,
    echoes: Sequence[tuple[int, int]] = (),
) -> int:
    """Weigh a message for sealing, in ``unit``; at least 1.

    The size in tokens is ``message_tokens``, the size in characters the code points of body and
    name. ``echoes`` are ranges of the body that weigh nothing.
    """
    if not echoes and unit == "tokens":
        return message_tokens(message, counter)
    size = _frame(message, unit=unit, counter=counter)
    pieces = _pieces(message, counter) if unit == "tokens" else ()
    for low, high in without_echoes(0, len(body(message)), sorted(echoes)):
        size += _weigh(pieces, low, high, counter) if unit == "tokens" else high - low
    return max(1, size)


def without_echoes(
    start: int, end: int, echoes: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Return the stretches between two offsets that lie in no echo; ``echoes`` are sorted."""
    for begin, stop in echoes:
        if begin >= end:
            break
        if begin > start:
            yield start, begin
        start = max(start, stop)
    if start < end:
        yield start, end


def _pieces(message: Message, counter: TokenCounter) -> list[Piece]:
    """Cut a body into pieces that are priced by different rules; the pieces joined are the body."""
    content = message.content
    if isinstance(content, str):
        if not message.tool_calls:
            return [Piece(content)]
        pieces = [Piece(content)] if content else []
    else:
        pieces = [Piece(part_text(part), _part_price(part, counter)) for part in content]
    for call in message.tool_calls:
        text = _call_text(call)
        # A call costs its canonical JSON; its line in the body is shorter.
        extra = _call_price(call, counter) - counter.count(text)
        pieces.append(Piece(text, extra=max(0, extra)))
    # The line end between two pieces belongs to the first.
    return [piece._replace(text=piece.text + "\n") for piece in pieces[:-1]] + pieces[-1:]


def _weigh(pieces: Sequence[Piece], start: int, end: int, counter: TokenCounter) -> int:
    """Return the tokens of the body between two offsets, without the frame."""
    size = begin = 0
    for piece in pieces:
        stop = begin + len(piece.text)
        if start < stop and begin < end:
            if start <= begin:
                size += piece.extra + (piece.price or 0)
            if piece.price is None:
                low, high = max(start - begin, 0), min(end, stop) - begin
                size += counter.count(piece.text[low:high])
        begin = stop
    return size


def slice_points(
    message: Message,
    *,
    unit: Unit,
    target: int,
    counter: TokenCounter,
) -> tuple[int, ...]:
    """Return the inner offsets at which to cut a body into slices of at most ``target``.

    A slice ends at the last blank line in its second half; without one, at a line end, sentence
    end, white space or grapheme boundary there. It is measured with the message's frame (its name
    and role). A slice is over the target in two cases only. Where the frame takes more than half
    the target, a slice may be over by the excess, so that a long name cannot make a slice of each
    character. And one grapheme cluster, or one part that is not text, can be larger by itself.
    Time grows linearly with the body.
    """
    frame = _frame(message, unit=unit, counter=counter)
    least = 0 if unit == "chars" else MESSAGE_OVERHEAD
    room = max(target - frame, (target - least) // 2, 1)
    if unit == "chars":
        return char_points(body(message), room)
    return token_points(_pieces(message, counter), room, counter.count)


def slice_sizes(
    message: Message,
    points: Sequence[int],
    *,
    unit: Unit,
    counter: TokenCounter,
) -> tuple[tuple[int, int], ...]:
    """Return (size in ``unit``, tokens) of each slice that ``points`` make, each with the frame."""
    pieces = _pieces(message, counter)
    frame = _frame(message, unit=unit, counter=counter)
    in_tokens = _frame(message, unit="tokens", counter=counter)
    bounds = [0, *points, sum(len(piece.text) for piece in pieces)]
    sizes: list[tuple[int, int]] = []
    for start, end in pairwise(bounds):
        tokens = in_tokens + _weigh(pieces, start, end, counter)
        sizes.append((tokens if unit == "tokens" else max(1, frame + end - start), tokens))
    return tuple(sizes)


def message_hash(message: Message) -> str:
    """Return a message's output hash: H(role, name, content, tool calls, created_at).

    The hash is a tagged SHA-256, of which 160 bits are kept. The time counts as an instant in any
    time zone. Every part is preceded by its length, so that no two messages are confused.
    """
    at = message.created_at
    moment = "-" if at is None else str((at - _EPOCH) // _MICROSECOND)
    return _digest("message", message, "", moment)


def fingerprint(message: Message) -> str:
    """Return a hash of all that must be equal under one key: role, content, name, thread, calls."""
    return _digest("key", message, message.thread, "")


def _digest(kind: str, message: Message, thread: str, moment: str) -> str:
    content = message.content
    if isinstance(content, str):
        form = "text"
    else:
        form = "parts"
        content = canonical_json([_part_json(part) for part in content])
    # The arguments are hashed as the text that the model wrote.
    calls = "\n".join(
        _ENCODER.encode({name: getattr(call, name) for name in ("arguments", "id", "name", "type")})
        for call in message.tool_calls
    )
    length = "-" if message.name is None else len(message.name)
    text = (
        f"{kind} {message.role} {form} {moment} {length} {len(thread)} {len(calls)} "
        f"{len(content)}\n"
        f"{message.name or ''}{thread}{calls}{content}"
    )
    return "sha256:" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]


def _part_json(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"text": part.text}
    if isinstance(part, ImagePart):
        return {"image": part.reference, "detail": part.detail}
    if isinstance(part, FilePart):
        return {"file": part.reference, "name": part.name, "media_type": part.media_type}
    return {"data": part.data}


def heard(stored: StoredMessage, begin: int, end: int | None) -> str:
    """Return the stretch of a message's body without hiermem's own renderings."""
    text = body(stored.message)
    if not stored.echoes:
        return text[begin:end] if begin or end is not None else text
    stop = len(text) if end is None else min(end, len(text))
    return "".join(text[low:high] for low, high in without_echoes(begin, stop, stored.echoes))


def part_name(stored: StoredMessage, begin: int, end: int | None) -> str:
    """Return a name for a part of a message: the message's hash and the part's characters."""
    echoes = "".join(f"-{first}:{last}" for first, last in stored.echoes)
    return f"{stored.hash}[{begin}:{'' if end is None else end}{echoes}]"


def _hash(kind: str, parts: Sequence[object]) -> str:
    """Hash ``parts`` as canonical JSON under ``kind``, so that no two lists are confused."""
    written = json.dumps([kind, *parts], ensure_ascii=True, separators=(",", ":"))
    return "sha256:" + sha256(written.encode("ascii")).hexdigest()


#: The strategy of nodes whose inputs are kept word for word: they depend on no setting or model.
VERBATIM: Final = _hash("strategy", ["verbatim"])


def strategy_hash(
    *,
    template: str,
    style: str,
    lengths: Sequence[object],
    temperature: float,
    model: str,
    counter: str,
) -> str:
    """Hash the way in which summaries of one level are made.

    ``template`` is the identity of the prompt (name, version and a hash of its text); ``lengths``
    are the settings that decide how long summaries up to this level are.
    """
    return _hash("strategy", [template, style, list(lengths), temperature, model, counter])


def input_hash(*, level: int, strategy: str, outputs: Sequence[str], overlap: str = "") -> str:
    """Hash a node's sources: its inputs' output hashes, in order, and the strategy.

    >>> a = input_hash(level=1, strategy="s", outputs=["x", "y"])
    >>> a == input_hash(level=1, strategy="s", outputs=["y", "x"])
    False
    """
    return _hash("input", [level, strategy, list(outputs), overlap])


def output_hash(
    *,
    text: str,
    anchors: Sequence[str] = (),
    tags: Sequence[str] = (),
    entities: Sequence[str] = (),
) -> str:
    """Hash a node's text. An equal hash stops the dirty mark from moving further up."""
    return _hash("output", [text, list(anchors), list(tags), list(entities)])
