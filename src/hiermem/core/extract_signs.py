"""The signs by which a sentence is known to leave something open, to settle it, or to decide.

The one rule: patterns and nothing else, each of one pass over one sentence. They are English, but
for the marks of work to do. What a sign makes of a sentence is decided by ``extract_open``.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "ASIDE",
    "ASKING",
    "BOX",
    "CLAUSE",
    "DATED",
    "DECIDED",
    "DONE",
    "DOUBT",
    "FIXED",
    "IMPACT",
    "MARK",
    "MILESTONE",
    "MUST",
    "NO_PROMISE",
    "NO_TASK",
    "PHATIC",
    "PREFERS",
    "PROMISE",
    "SUPPOSED",
    "TASK",
    "TROUBLE",
    "UNSURE",
]

#: A request for help is what the answer after it is for, and no part of what is stated.
ASIDE: Final = re.compile(
    r"[,;]?\s*(?:\b(?:and|but|so|or)\s+)?(?:\b(?:can|could|would|will) (?:you|anyone|someone"
    r"|I get)\b|\bcan I get\b|\bplease\b|\bhere(?:['\u2019]s| is| are) (?:my|the|what|an?"
    r"|some)\b|\bany (?:tips|ideas|advice|thoughts|suggestions)\b|\b(?:do|did) you (?:think"
    r"|know|have)\b|\bmaybe something like\b|\bwhat do you think\b|\bI(?:['\u2019]d"
    r"| would) (?:like|love|appreciate)\b|\bhow (?:can|do|should) I\b).*$",
    re.IGNORECASE | re.DOTALL,
)
#: Where one clause ends and another begins.
CLAUSE: Final = re.compile(
    r"(?:[;:]|,? (?:and|but|so|because|since)\b|,) ",
)
#: Questions that keep a conversation going and want no answer of substance.
PHATIC: Final = re.compile(
    r"\b(?:how (?:are|were|have) (?:you|ya|things)|how(?:['\u2019]s| is| was) (?:it|everything"
    r"|life|your|that|the)|what(?:['\u2019]s| is) (?:up|new|going on)|how about you"
    r"|what about you|you\?|right\?|don['\u2019]t you think|isn['\u2019]t it"
    r"|doesn['\u2019]t it|know what i mean|(?:would|do) you (?:like|want) (?:me|to|more|any"
    r"|help)|(?:can|may|shall|should) i help|anything else|need (?:any|more) help|any other"
    r"|does that (?:make sense|help|sound)|sounds? good|who knows|are you kidding|guess what)",
    re.IGNORECASE,
)
#: A reply that puts a question off.
UNSURE: Final = re.compile(
    r"\b(?:(?:i['\u2019]m |i am )?not (?:sure|certain)(?: yet)?|(?:i )?don['\u2019]t know"
    r"|no idea|(?:let me|i['\u2019]ll|i will|i need to|i['\u2019]d have to|have to) (?:check"
    r"|ask|look into|find out|get back|think about)|still (?:figuring|deciding|thinking)"
    r"|haven['\u2019]t (?:decided|figured|checked|heard)|to be decided|TBD|we['\u2019]ll see"
    r"|hard to say)\b",
    re.IGNORECASE,
)
#: A mark of work to do, in any language.
MARK: Final = re.compile(
    r"\b(?:TODO|FIXME|XXX)\b(?:\([^)]{0,40}\))?[:\s-]+(?P<rest>[^\n]{4,240})",
)
#: A box to tick, in Markdown.
BOX: Final = re.compile(
    r"^[ \t]*[-*+] \[(?P<tick>[ xX])\] (?P<rest>[^\n]{3,240})",
    re.MULTILINE,
)
#: What somebody has to do.
TASK: Final = re.compile(
    r"\b(?:i|we)(?:['\u2019]ve)? (?:still )?(?:need to|have to|must|gotta)\b|\bi still (?:need"
    r"|have|must|want)\b|\b(?:don['\u2019]t|do not|can['\u2019]t) forget to\b|\bremind me to\b"
    r"|\b(?:next step|next up|remaining (?:work|task|step)s?|left to do|action item|to-do)\b"
    r"|\bneeds? to be (?:done|fixed|updated|tested|reviewed|written|added|checked)\b"
    r"|\bhaven['\u2019]t (?:\w+ )?(?:finished|done|started|implemented|tested|deployed|written"
    r"|set up)\b|\bnot (?:done|finished|implemented|tested|deployed|written) yet\b",
    re.IGNORECASE,
)
#: What somebody says they will do.
PROMISE: Final = re.compile(
    r"\b(?:i['\u2019]ll|i will|we['\u2019]ll|we will|i promise to|i(?:['\u2019]m| am) (?:going"
    r"|planning) to|we(?:['\u2019]re| are) (?:going|planning) to|i(?:['\u2019]m| am) gonna"
    r"|i plan to|we plan to|i(?:['\u2019]m| am) thinking (?:of|about))\b",
    re.IGNORECASE,
)
#: What does not work, or is not understood.
TROUBLE: Final = re.compile(
    r"\b(?:still (?:getting|seeing (?:the|an?|this)|failing|fails|broken|not working|doesn"
    r"|can['\u2019]t)|keeps? (?:getting|failing|crashing|happening|throwing)|(?:does|do|did|is"
    r"|was)n['\u2019]t work(?:ing)?|not working|can['\u2019]t (?:figure|get|seem|find out)"
    r"|couldn['\u2019]t (?:figure|get|find)|having (?:trouble|issues|problems|a hard time)"
    r"|running into|(?:i['\u2019]m|i am) (?:stuck|struggling|getting (?:an?|the|this))"
    r"|not sure (?:how|why|what|if|whether|where|which)|unsure|no idea (?:how|why|what)"
    r"|unclear|(?:error|bug|problem|issue) persists|to be (?:decided|determined)"
    r"|haven['\u2019]t decided|undecided|open question|unresolved|blocked (?:by|on)"
    r"|crashes when|fails (?:when|with|on|to))\b",
    re.IGNORECASE,
)
#: A doubt that an answer settles, rather than a failure that only a report of success does.
DOUBT: Final = re.compile(
    r"\b(?:not sure|unsure|unclear|no idea|figure|trouble|hard time|stuck|struggling|find)\b",
    re.IGNORECASE,
)
#: What is only supposed is neither trouble nor done.
SUPPOSED: Final = re.compile(
    r"\b(?:if|when|whenever|in case|unless|could|couldn['\u2019]t|would)\b",
    re.IGNORECASE,
)
#: The start of a question that asks somebody to do or tell something.
ASKING: Final = re.compile(
    r"^\W*(?:(?:so|and|but|also|hmm),? )?(?:can|could|would|will|do|does|should|is|are)\b",
    re.IGNORECASE,
)
#: A report that something is done.
DONE: Final = re.compile(
    r"\b(?:(?:i|we)(?:['\u2019]ve| have)?(?: (?:just|already|finally|now|also))? (?:fixed"
    r"|resolved|solved|completed|finished|implemented|deployed|added|merged|shipped|integrated"
    r"|sorted|figured out|managed to|passed|signed|submitted|sent|booked|bought|updated"
    r"|upgraded|migrated|got .{1,40} working)|(?:has|have|was|were|is|are) (?:now |been "
    r"|finally )*(?:fixed|resolved|solved|completed|finished|deployed|merged|implemented)\b"
    r"|now works?\b|works now\b|no longer (?:fails|happens|occurs))",
    re.IGNORECASE,
)
#: What was settled.
DECIDED: Final = re.compile(
    r"^(?:decision(?: \d+)?|decided|agreed) ?:|\b(?:board|team|council|committee|management|client)"
    r" (?:unanimously )?(?:decides?|decided|agreed|approved)\b|"
    r"\b(?:(?:i|we)(?:['\u2019]ve| have)?(?: (?:just|already|finally|now|also))? (?:decided"
    r"|chosen|chose|opted|picked|settled on|agreed|switched|migrated|moved (?:from \S+ to"
    r"|over to)|went with|going with|committed to)|(?:i|we)(?:['\u2019]ll| will| am|['\u2019]m"
    r"|['\u2019]re) (?:going to go with|go with|going with|stick (?:to|with)"
    r"|switch(?:ing)? to)|(?:decided|agreed) (?:to|on|that|against)|decision (?:is|was) to)\b",
    re.IGNORECASE,
)
#: What somebody wants to hold from now on.
PREFERS: Final = re.compile(
    r"^(?:please )?(?:always|never)\b|\bi(?:['\u2019]d)? (?:really )?(?:prefer|would rather)\b"
    r"|\bmy preference\b|\bfrom now on\b|\bi(?:['\u2019]d| would) rather\b",
    re.IGNORECASE,
)
#: What must or must not be.
MUST: Final = re.compile(
    r"\b(?:must(?: not|n['\u2019]t)?|(?:is|are) not allowed|cannot exceed|no more than|at most"
    r"|at least|under \d|within \d|requires?|has to be|limited to|budget (?:is|of))\b",
    re.IGNORECASE,
)
#: What is reached, or due.
MILESTONE: Final = re.compile(
    r"\b(?:deadline|due (?:on|by|date)|milestone|launch(?:es|ed|ing)?|release(?:d)?|sprint \d"
    r"|first sprint|go live|kick-?off|scheduled (?:for|on)|target(?:s|ing|ed)? completion"
    r"|by (?:the end of|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|next (?:week|month"
    r"|year)))",
    re.IGNORECASE,
)
#: What changed, in figures.
IMPACT: Final = re.compile(
    r"\b(?:reduc(?:ed|es|ing)|improv(?:ed|es|ing)|increas(?:ed|es|ing)|cut|dropped|speeds? up"
    r"|sped up|grew|went (?:from|up|down)|saved|from \S{1,12} to|gives us"
    r"|brought .{1,20} down)\b[^.]{0,80}\d",
    re.IGNORECASE,
)
#: A day or a date, as milestones have one.
DATED: Final = re.compile(
    r"\d{1,2}(?:st|nd|rd|th)?\b|\b(?:january|february|march|april|june|july|august|september"
    r"|october|november|december|monday|tuesday|wednesday|thursday|friday|next (?:week|month"
    r"|year))\b",
    re.IGNORECASE,
)
#: A report, by whoever did it, that a thing is changed now.
FIXED: Final = re.compile(
    r"\b(?:has been|have been|is now|are now|was|were) (?:fixed|resolved|updated|removed"
    r"|replaced)\b|\b(?:fixed|resolved) the\b",
    re.IGNORECASE,
)
#: "I have to say" is nothing to be done.
NO_TASK: Final = re.compile(
    r"\b(?:say|admit|know|ask|agree|laugh|remember when|tell you|hand it|see (?:it|that|them))\b",
    re.IGNORECASE,
)
#: What follows "I'll" without being a promise.
NO_PROMISE: Final = re.compile(
    r"^(?:\W*\w+){0,3}?\W*(?:never forget|always (?:remember|be|love|cherish)|be (?:here|there"
    r"|rooting|able|happy|glad|fine|ok|okay|honest)|help you|help with|guide|walk you|show you"
    r"|provide|let you|assist|see you|talk to you|catch you|miss|say|admit|take it|do my best"
    r"|try my best|keep that in|need|have to|assume|explain|outline|break)\b",
    re.IGNORECASE,
)
