# ruff: noqa: RUF001  # the letters and marks of other languages are meant
"""Decides whether a text turns a prohibition of another text round.

A prohibition and a sentence that repeats it deny the same words equally often: "never pay without
approval" and "paying needs approval" both hold, "payments need no approval" does not. The words
are compared clause by clause, in English, German, French, Spanish, Russian and Chinese; what is
denied without these words is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from hiermem.data import word_lists

# Each begins with one set of characters, to which a search skips quickly.
_SENTENCE: Final = re.compile(
    r"[.!?;\n。！？；](?:(?<=[.!?;])[.!?;]*(?=\s|$)|(?<=[\n。！？；])[\n。！？；]*)\s*"
)
_CLAUSE: Final = re.compile(r"[,:，：](?:(?<=[,:])[,:]*(?=\s|$)|(?<=[，：]))\s*")
_WORD: Final = re.compile(r"\w+")
_HAN: Final = re.compile("[\u3400-\u9fff]+")

# The patterns read text in lower case, which is several times as fast as ignoring the case.

#: What forbids. A clause without it may deny, but forbids nothing.
_FORBIDS: Final = re.compile(
    r"(?:^\W*(?:please |so |and |but )?|\b(?:please|you|we|they) )(?:do not|don't)\b"
    r"(?! (?:worry|forget|know|think|hesitate|mind|have|need|want|like))"
    r"|\b(?:cannot|can not|can't)\b"
    r"(?! (?:wait|believe|help|imagine|thank|tell|say|see|stop|remember|find|go wrong))"
    r"|\b(?:(?:must|may|shall|should) not|mustn't|shouldn't|never"
    r"|not (?:be )?(?:allowed|permitted)|forbidden|prohibited|banned|under no circumstances"
    r"|on no account|no longer"
    r"|(?:darf|dürfen|soll|sollen|sollte) (?:\w+ ){0,4}?nicht|niemals|nie|verboten|untersagt"
    r"|auf keinen fall|keinesfalls|unter keinen umständen"
    r"|ne (?:doit|doivent|faut|peut|peuvent|pas|jamais)|n'est pas (?:permis|autorisé)|jamais"
    r"|interdit\w*|en aucun cas"
    r"|no (?:se )?(?:debe\w*|puede\w*)|nunca|jamás|prohibid\w*|en ningún caso"
    r"|нельзя|никогда|запрещ\w+|ни в коем случае|не должн\w+)\b"
    r"|禁止|不得|不能|不可|不要|不准|不许|绝不|切勿|严禁",
)
#: What every match has of that; most sentences have nothing of it.
_FORBIDS_PERHAPS: Final = re.compile(
    r"n(?:ot\b|'t(?<=[oatd]n't)|ever|o (?:circ|acc|longer|se |debe|puede)|icht|ie(?:\b|mals)|unca"
    r"|e (?:doi|faut|peu|pas|jam)|'est|ed(?<=banned)|tersagt|ingún|esfalls| fall| umst| cas|terdit)"
    r"|forbid|verbot|prohib|jamais|jamás|нель|ник|запрещ|ни |не |禁|不|绝|切|严"
)
#: What denies, each once; phrases that a language doubles count as one.
_DENIES: Final = re.compile(
    r"\b(?:not|never|no|none|nobody|without|neither|forbidden|prohibited|banned|avoid\w*"
    r"|disallow\w*|refus\w+|unauthori[sz]ed|cannot|\w+n't"
    r"|nicht|kein\w*|nie|niemals|ohne|verboten|untersagt|verbot|keinesfalls"
    r"|pas|jamais|aucun\w*|sans|interdi\w+|interdiction"
    r"|nunca|jamás|sin|ningun\w*|ningún|prohibi\w+|prohíb\w+"
    r"|не|нет|нельзя|без|запре\w+)\b"
    r"|不|没|勿|无需|禁|严禁|避免",
)
#: Doubled denials of one meaning, which are read as one.
_DOUBLED: Final = re.compile(
    r"\b(?:under no circumstances|on no account|never ever|auf keinen fall|unter keinen umständen"
    r"|en aucun cas(?: \w+){0,3}? pas|en aucun cas|en ningún caso|no (?:\w+ ){1,4}?nunca"
    r"|никогда не|ни в коем случае(?: \w+){0,2}? не|cannot|no longer)\b"
    r"|绝对不|绝不|千万不|严禁",
)
#: Modal words and words of permission. A report of a past event cannot reverse a rule.
_RULES: Final = re.compile(
    r"\b(?:may|can|could|must|should|shall|will|need\w*|required?|always|allow\w*|permit\w*"
    r"|permissible|authori[sz]ed|free to|ok(?:ay)? to|fine to|fine|want\w*|plan\w*|prefer\w*"
    r"|encouraged|recommended|agreed|is to|are to"
    r"|darf|dürfen|kann|können|muss|müssen|soll\w*|erlaubt|gestattet|zulässig|immer|wird|werden"
    r"|wollen|möcht\w*|brauch\w*|nötig|erforderlich"
    r"|peu(?:t|vent)|doi(?:t|vent)|faut|autoris\w+|permis\w*|toujours|ser(?:a|ont)|nécessaire"
    r"|pued\w+|deb\w+|hay que|permit\w+|autoriza\w*|siempre|necesit\w*|hace falta|será\w*"
    r"|можно|разреш\w+|должн\w+|нужн\w+|надо|всегда|будет|будут)\b"
    r"|可以|允许|必须|应当|应该|无需|随时|将|能",
)
#: Words that carry no meaning, or deny, allow and order and so are read by themselves.
_LIGHT: Final = word_lists("denial_words")["light"]
_HAN_LIGHT: Final = re.compile(
    "绝对|千万|一定|可以|允许|必须|应当|应该|随时|禁止|严禁|无需|不得|不能|不可|不要|不准|不许|绝不|切勿"
    "|没有|避免|[的了在不将会能可要要得把被都也是个]"
)
#: How words for going over a limit begin. "Up to 900" breaks no rule that 900 is not exceeded.
_OVER: Final = tuple(word_lists("denial_words")["over"])
#: The fewest letters in which two forms of one word agree.
_SHORTEST_HEAD: Final = 3
#: A lone word that is forbidden is judged only where it is as long as this, and in a short clause.
_TELLING: Final = 6
_SHORT_CLAUSE: Final = 9
#: A rule is short; where more words stand together, nothing tells which of them it denies.
_MOST_TERMS: Final = 8
_MOST_SENTENCES: Final = 400


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause: its words of meaning, whether it denies them, and whether it rules anything."""

    terms: frozenset[str]
    denies: bool
    rules: bool
    length: int
    text: str


def inverted(source: str, output: str) -> int:
    """Return how many prohibitions of ``source`` are turned round in ``output``.

    A prohibition that ``source`` itself lifts, or that ``output`` also repeats, does not count. A
    clause that ``output`` quotes turns nothing round.
    """
    source = _lowered(source)
    rules = list(_clauses(source, forbidding=True))
    if not rules:
        return 0
    output = _lowered(output)
    known = set(_heads(_terms(output)))
    rules = [
        rule for rule in rules if _is_most(rule, sum(map(known.__contains__, _heads(rule.terms))))
    ]
    if not rules:
        return 0
    written = list(_clauses(output, about=rules))
    said = " ".join(source.casefold().split())
    claimed = [clause for clause in written if clause.text not in said]
    turned = [
        rule for rule in rules if _has_opposite(rule, claimed) and not _is_repeated(rule, written)
    ]
    if not turned:
        return 0
    stated = list(_clauses(source, about=turned))
    return sum(not _has_opposite(rule, stated) for rule in turned)


def _has_opposite(rule: _Clause, clauses: list[_Clause]) -> bool:
    """Return whether a clause rules the opposite of ``rule``."""
    if _words(rule) > _MOST_TERMS:
        return False
    return any(
        clause.rules
        and clause.denies != rule.denies
        and _words(clause) <= 2 * _MOST_TERMS
        and _is_enough(rule, clause, _shared(rule.terms, clause.terms))
        for clause in clauses
    )


def _is_repeated(rule: _Clause, clauses: list[_Clause]) -> bool:
    """Return whether a clause denies half of the words of ``rule`` as the rule does."""
    return any(
        clause.denies == rule.denies and 2 * _shared(rule.terms, clause.terms) >= len(rule.terms)
        for clause in clauses
    )


def _is_enough(rule: _Clause, clause: _Clause, shared: int) -> bool:
    """Return whether so many shared words mean that both clauses speak of one thing."""
    if _goes_over(rule) and not _goes_over(clause):
        return False
    if len(rule.terms) == 1:
        (term,) = rule.terms
        return shared == 1 and len(term) >= _TELLING and clause.length <= _SHORT_CLAUSE
    return _is_most(rule, shared)


def _is_most(rule: _Clause, shared: int) -> bool:
    """Return whether so many of the words of ``rule`` are most of them."""
    return shared >= min(2, len(rule.terms)) and 3 * shared >= 2 * len(rule.terms)


def _lowered(text: str) -> str:
    return text.replace("’", "'").lower()


def _folded(text: str) -> str:
    return " ".join(text.casefold().split()).lstrip("-*•# ").rstrip("…")


def _words(clause: _Clause) -> float:
    """Return how many words of meaning a clause has; a Chinese word is two of its pairs."""
    return sum(0.5 if _HAN.match(term) else 1.0 for term in clause.terms)


def _goes_over(clause: _Clause) -> bool:
    return any(term.startswith(_OVER) for term in clause.terms)


def _clauses(
    text: str, *, forbidding: bool = False, about: Iterable[_Clause] = ()
) -> Iterator[_Clause]:
    """Yield the lower-case clauses of ``text`` that share the beginning of a word with ``about``.

    With ``forbidding`` they are instead those that forbid.
    """
    heads = {head for rule in about for head in _heads(rule.terms)}
    for sentence in _SENTENCE.split(text)[:_MOST_SENTENCES]:
        if forbidding and _FORBIDS_PERHAPS.search(sentence) is None:
            continue
        rules: bool | None = None
        for part in _CLAUSE.split(sentence):
            if forbidding and _FORBIDS.search(part) is None:
                continue
            terms = _terms(part)
            if not terms or not (forbidding or not heads.isdisjoint(_heads(terms))):
                continue
            if rules is None:
                rules = _RULES.search(sentence) is not None
            denials = len(_DENIES.findall(_DOUBLED.sub(" not ", part)))
            yield _Clause(terms, denials % 2 == 1, rules, len(part.split()), _folded(part))


def _terms(clause: str) -> frozenset[str]:
    """Return the words of a clause that carry its meaning."""
    found: set[str] = set()
    if not clause.isascii():
        for run in _HAN.findall(clause):
            left = _HAN_LIGHT.sub("", run)
            found.update(left[at : at + 2] for at in range(len(left) - 1))
        clause = _HAN.sub(" ", clause)
    words = set(_WORD.findall(clause)) - _LIGHT
    return frozenset(found.union(word for word in words if len(word) >= _SHORTEST_HEAD))


def _heads(terms: Iterable[str]) -> Iterator[str]:
    """Yield the letters in which all forms of each of ``terms`` agree."""
    return (term[:_SHORTEST_HEAD] for term in terms)


def _shared(first: frozenset[str], second: frozenset[str]) -> int:
    """Return how many words of ``first`` stand in ``second``, in any form."""
    return sum(any(_is_form(one, other) for other in second) for one in first)


def _is_form(one: str, other: str) -> bool:
    """Return whether two words begin alike up to their endings."""
    if one == other:
        return True
    if not one.isascii() and _HAN.fullmatch(one):
        return False
    head = max(_SHORTEST_HEAD, min(len(one), len(other)) - 2, (max(len(one), len(other)) + 1) // 2)
    if min(len(one), len(other)) < head:
        return one.startswith(other) or other.startswith(one)
    return one[:head] == other[:head]
