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
from hiermem.core.text.lexicon import stem

#: What orders a summariser, in English, German, French, Spanish, Russian and Chinese.
_ORDER: Final = re.compile(
    r"\b(?:ignore|disregard|forget) (?:\w+ ){0,4}(?:instructions?|prompts?|rules|above)\b"
    r"|\b(?:in|into) (?:every|each|any|your|the|all) (?:\w+ )?summar(?:y|ies)\b"
    r"|\b(?:when|if|while) (?:you )?summari[sz]\w+|\bsummary (?:must|should|has to|shall)\b"
    r"|\b(?:write|state|note|record|include) (?:in \w+ \w+ )?that\b"
    r"|\b(?:ignoriere?n?|vergiss|missachte) (?:\w+ ){0,4}(?:anweisung|vorgabe|regel)\w*"
    r"|\bin (?:jeder|deiner|ihrer|der) zusammenfassung|\bschreiben? (?:sie )?,? ?dass\b"
    r"|\b(?:ignore[rz]?|oublie[rz]?) (?:\w+ ){0,4}(?:instructions?|consignes?)"
    r"|\bdans (?:chaque|ton|votre|le|tout) résumé|\bécri(?:s|vez|re) que\b"
    r"|\b(?:ignora|ignore|olvida) (?:\w+ ){0,4}instrucciones|\ben (?:cada|tu|su|el|todo) resumen"
    r"|\b(?:escribe|escriba) que\b"
    r"|игнорируй\w*|в (?:каждом|своём|твоём) (?:резюме|пересказе)"
    r"|(?:忽略|无视)[^。\n]{0,12}(?:指令|指示|说明)|在[^。\n]{0,8}(?:摘要|总结)[里中]|(?:写|声明|注明)(?:道|明)?[：:]",
    re.IGNORECASE,
)
#: What tells of an order instead of obeying it.
_REPORTS: Final = re.compile(
    r"\b(?:instruct\w*|order\w*|inject\w*|ignor\w*|claim\w*|ask\w*|demand\w*|attempt\w*|tried|told"
    r"|prompt\w*|summar\w*|malicious|anweis\w*|verlang\w*|behaupt\w*|aufforder\w*|versuch\w*"
    r"|instruction\w*|demand\w*|prétend\w*|tent\w*|pid\w+|ordena\w*|afirm\w*|intent\w*"
    r"|инструк\w*|потреб\w*|попыт\w*)\b|指令|指示|要求|试图|注入|声称|忽略",
    re.IGNORECASE,
)
_TERM: Final = re.compile("[\u3400-\u9fff]{2}|\\w+")
_SHORTEST: Final = 4
#: The share of a sentence's words that only orders have, from which it repeats an order, and the
#: fewest such words.
_OBEYED: Final = 0.6
_FEWEST: Final = 2


def obeys(texts: Iterable[str], output: str) -> bool:
    """Return whether a sentence of ``output`` states what only an order in ``texts`` says."""
    texts = tuple(texts)
    if not any(_ORDER.search(text) for text in texts):
        return False
    ordered: set[str] = set()
    claimed: set[str] = set()
    for text in texts:
        if _ORDER.search(text) is None:
            claimed |= _terms(text)
            continue
        for each in statements(text):
            (ordered if _ORDER.search(each) else claimed).update(_terms(each))
    if not ordered:
        return False
    only = ordered - claimed
    return any(_repeats(each, only) for each in statements(output))


def _repeats(statement: str, only: set[str]) -> bool:
    terms = _terms(statement)
    found = len(terms & only)
    return found >= _FEWEST and found >= _OBEYED * len(terms) and _REPORTS.search(statement) is None


def _terms(text: str) -> set[str]:
    """Return the stems of the longer words and the figures of ``text``."""
    return {
        stem(word)
        for word in _TERM.findall(text.casefold())
        if len(word) >= _SHORTEST or not word.isalpha() or not word.isascii()
    }
