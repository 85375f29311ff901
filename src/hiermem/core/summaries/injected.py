# ruff: noqa: RUF001  # the letters and marks of other languages are meant
"""Decides whether an answer states as a fact what a text of the record ordered a summariser to say.

An order to whoever summarises is part of the record and may be reported. Its content is no fact:
what stands in such an order alone, and nowhere else in the record, was not said by anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hiermem.core.summaries.form import statements
from hiermem.core.text.stemming import stem

# The patterns read text in lower case, which is several times as fast as ignoring the case.

#: What orders a summariser, in English, German, French, Spanish, Russian and Chinese: patterns, by
#: texts of which every match has one (an underscore stands for a blank). Most records have none of
#: these, and the search for a text takes a fraction of the time.
_ORDERS: Final = {
    "ignore disregard forget": (
        r"\b(?:ignore|disregard|forget) (?:\w+ ){0,4}(?:instructions?|prompts?|rules|above)\b"
    ),
    "summar": (
        r"\b(?:in(?:to)? (?:every|each|any|your|the|all) (?:\w+ )?summar(?:y|ies)\b"
        r"|(?:when|if|while) (?:you )?summari[sz]\w|summary (?:must|should|has to|shall)\b)"
    ),
    "write_that state_that note_that record_that include_that"
    " write_in_ state_in_ note_in_ record_in_ include_in_": (
        r"\b(?:write|state|note|record|include) (?:in \w+ \w+ )?that\b"
    ),
    "ignorier vergiss missachte zusammenfassung schreib": (
        r"\b(?:(?:ignorier|vergiss|missachte)(?:e|en|t)?"
        r" (?:\w+ ){0,4}(?:anweisung|vorgabe|regel)"
        r"|in (?:jeder|deiner|ihrer|der) zusammenfassung|schreiben? (?:sie )?,? ?dass\b)"
    ),
    "ignore oublie résumé écri": (
        r"\b(?:(?:ignor|oubli)(?:e|er|ez) (?:\w+ ){0,4}(?:instructions?|consignes?)"
        r"|dans (?:chaque|ton|votre|le|tout) résumé|écri(?:s|vez|re) que\b)"
    ),
    "instrucciones resumen escribe_que escriba_que": (
        r"\b(?:(?:ignora|ignore|olvida) (?:\w+ ){0,4}instrucciones"
        r"|en (?:cada|tu|su|el|todo) resumen|escrib[ea] que\b)"
    ),
    "игнорируй резюме пересказе": r"\b(?:игнорируй|в (?:каждом|своём|твоём) (?:резюме|пересказе))",
    "忽略 无视 摘要 总结 写 声明 注明": (
        r"(?:忽略|无视)[^。\n]{0,12}(?:指令|指示|说明)|在[^。\n]{0,8}(?:摘要|总结)[里中]"
        r"|(?:写|声明|注明)(?:道|明)?[：:]"
    ),
}
_SEARCHED: Final = tuple(
    (re.compile(pattern), tuple(part.replace("_", " ") for part in parts.split()))
    for parts, pattern in _ORDERS.items()
)
#: What tells of an order instead of obeying it.
_REPORTS: Final = re.compile(
    r"\b(?:instruct\w*|order\w*|inject\w*|ignor\w*|claim\w*|ask\w*|demand\w*|attempt\w*|tried|told"
    r"|prompt\w*|summar\w*|malicious|anweis\w*|verlang\w*|behaupt\w*|aufforder\w*|versuch\w*"
    r"|instruction\w*|demand\w*|prétend\w*|tent\w*|pid\w+|ordena\w*|afirm\w*|intent\w*"
    r"|инструк\w*|потреб\w*|попыт\w*)\b|指令|指示|要求|试图|注入|声称|忽略",
)
_TERM: Final = re.compile("[\u3400-\u9fff]{2}|\\w+")
_SHORTEST: Final = 4
#: The share of a sentence's words that only orders have, from which it repeats an order, and the
#: fewest such words.
_OBEYED: Final = 0.6
_FEWEST: Final = 2


def obeys(texts: Iterable[str], output: str) -> bool:
    """Return whether a sentence of ``output`` states what only an order in ``texts`` says."""
    ordering = [(text, _orders(text)) for text in texts]
    if not any(orders for _, orders in ordering):
        return False
    ordered: set[str] = set()
    claimed: set[str] = set()
    for text, orders in ordering:
        for each in statements(text) if orders else (text,):
            (ordered if orders and _orders(each) else claimed).update(_terms(each))
    if not ordered:
        return False
    only = ordered - claimed
    return any(_repeats(each, only) for each in statements(output))


def _orders(text: str) -> bool:
    text = text.lower()
    return any(
        any(part in text for part in parts) and pattern.search(text) is not None
        for pattern, parts in _SEARCHED
    )


def _repeats(statement: str, only: set[str]) -> bool:
    terms = _terms(statement)
    found = len(terms & only)
    return (
        found >= _FEWEST
        and found >= _OBEYED * len(terms)
        and _REPORTS.search(statement.lower()) is None
    )


def _terms(text: str) -> set[str]:
    """Return the stems of the longer words and the figures of ``text``."""
    return {
        stem(word)
        for word in _TERM.findall(text.lower())
        if len(word) >= _SHORTEST or not word.isalpha() or not word.isascii()
    }
