"""The patterns by which a sentence leaves something open, settles it, or decides.

Each pattern needs one pass over one sentence. They are English, except the marks of tasks.
``open_items`` decides what a match means.
"""

from __future__ import annotations

import re
from typing import Final

#: A request for help, which the next answer serves and which is not part of the statement.
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
#: Questions that keep a conversation going and need no substantial answer.
PHATIC: Final = re.compile(
    r"\b(?:how (?:are|were|have) (?:you|ya|things)|how(?:['\u2019]s| is| was) (?:it|everything"
    r"|life|your|that|the)|what(?:['\u2019]s| is) (?:up|new|going on)|how about you"
    r"|what about you|you\?|right\?|don['\u2019]t you think|isn['\u2019]t it"
    r"|doesn['\u2019]t it|know what i mean|(?:would|do) you (?:like|want) (?:me|to|more|any"
    r"|help)|(?:can|may|shall|should) i help|anything else|need (?:any|more) help|any other"
    r"|does that (?:make sense|help|sound)|sounds? good|who knows|are you kidding|guess what)",
    re.IGNORECASE,
)
#: A reply that does not know.
UNKNOWN: Final = re.compile(
    r"\b(?:(?:i['\u2019]m |i am |we['\u2019]re |we are )?not (?:sure|certain|decided)(?: yet)?"
    r"|(?:i |we )?do(?:n['\u2019]t| not) (?:know|remember|recall)(?! (?:about you|how you|if you"
    r"|what i(?:['\u2019]d| would)))|no answer (?:yet|so far)|not (?:yet )?known"
    r"|(?:i|we) do(?:n['\u2019]t| not) have (?:\w+ ){0,3}(?:information|info|data|details"
    r"|answers?|access)"
    r"|(?:can(?:not|['\u2019]t)|could(?: not|n['\u2019]t)|(?:am|['\u2019]m|was|were)"
    r" (?:not able|unable) to|did(?: not|n['\u2019]t)|have(?: not|n['\u2019]t)) (?:yet )?(?:find"
    r"|found|figured?|work(?:ed)?) (?:that|this|it|out|any(?:thing)?)\b(?! out of)"
    r"|(?:can(?:not|['\u2019]t)|could(?: not|n['\u2019]t)|(?:am|['\u2019]m|are)"
    r" (?:not able|unable) to) (?:answer|determine|verify)\b"
    r"|(?:is|are)(?: still)? (?:unknown|unclear)(?: to me)?"
    r"|no (?:idea|clue)|still (?:figuring|deciding|thinking|undecided|open)|undecided"
    r"|have(?:n['\u2019]t| not) (?:yet )?(?:decided|figured|checked|heard|made up|thought"
    r"|looked|asked)"
    r"|to be (?:decided|confirmed|determined)|TB[CD]|we['\u2019]ll see"
    r"|(?:hard|too early) to (?:say|tell)|can(?:not|['\u2019]t) (?:say|tell|know)(?: yet)?"
    r"(?! you (?:how|what)))\b",
    re.IGNORECASE,
)
#: Words that turn a doubt into an answer: "I am not sure, but it is 8080".
BUT: Final = re.compile(
    r"\b(?:but|though|however)\b(?!.*\b(?:check|ask|find out|look into|let you know|get back)\b)",
    re.IGNORECASE,
)
#: A reply that puts a question off.
WILL_CHECK: Final = re.compile(
    r"\b(?:let me|(?:i|we)['\u2019]ll|(?:i|we) will|(?:i|we) need to|(?:i|we)['\u2019]d have to"
    r"|have to) (?:have to |need to )?(?:check|ask|look into|find out|get back|think about"
    r"|let you know)\b",
    re.IGNORECASE,
)
#: A reply that asks for information needed for an answer.
ASKS_BACK: Final = re.compile(
    r"\b(?:could you (?:please )?(?:provide|share|tell me|specify|clarify|send)"
    r"|please (?:provide|share|specify|clarify|send)\b(?! me know)|i(?:['\u2019]ll"
    r"| will)? need to know)\b",
    re.IGNORECASE,
)
#: A mark of a task, in any language.
MARK: Final = re.compile(
    r"(?:(?:^|[#/*;%>-])[ \t]*(?:TODO|FIXME)\b(?:\([^)]{0,40}\))?[:\s-]+|\b(?:TODO|FIXME)"
    r"(?:\([^)]{0,40}\))?: *|[#/*;%][ \t]*XXX\b:?[ \t]+)(?P<rest>[^\n]{4,240})",
    re.MULTILINE,
)
#: A box to tick, in Markdown.
BOX: Final = re.compile(
    r"^[ \t]*[-*+] \[(?P<tick>[ xX])\] (?P<rest>[^\n]{3,240})",
    re.MULTILINE,
)
#: What somebody has to do.
TASK: Final = re.compile(
    r"\b(?:i|we)(?:['\u2019]ve)? (?:still )?(?:need to|have to|must|gotta)\b|\bi still (?:need"
    r"|want)\b"
    r"|\b(?:don['\u2019]t|do not|can['\u2019]t) forget to\b"
    r"|(?:^\W*|[.,;:!?] |\b(?:please|you|and) )remind me to\b"
    r"|\b(?:next step|next up|remaining (?:work|task|step)s?|left to do|action item|to-do)\b"
    r"|\b(?:needs?|has|have) to be (?:done|fixed|updated|tested|reviewed|written|added|checked"
    r"|rehearsed|renewed|signed|paid|sent|tidied|cleaned|replaced|removed)\b"
    r"|\bhaven['\u2019]t (?:\w+ )?(?:finished|done|started|implemented|tested|deployed|written"
    r"|set up)\b|\bnot (?:done|finished|implemented|tested|deployed|written) yet\b",
    re.IGNORECASE,
)
#: A point that somebody puts on a list, or calls open.
LISTED: Final = re.compile(
    r"\b(?:open|pending|outstanding|unresolved) (?:point|item|issue|matter|task)s?\b"
    r"|\b(?:remaining|remains?|still|left) open\b(?! (?:until|to|for|from|on|at))"
    r"|\bput (?:it|that|this|them) (?:down )?on (?:the|my|our) (?:open |to-?do )?list\b"
    r"|\b(?:goes|go) on the (?:open |to-?do )?list\b|\b(?:open|todo|backlog)\.(?:md"
    r"|txt)\b[^.:]{0,12}:"
    r"|\bto be (?:confirmed|clarified)\b|\bstill (?:waiting (?:for|on)|pending|missing)\b"
    r"|\bwaiting (?:for|on) (?:\w+ ){0,3}(?:approval|confirmation|feedback|reply|answer|decision"
    r"|signature)\b",
    re.IGNORECASE,
)
#: Words that say that a point on a list is no longer open.
CLOSES: Final = re.compile(
    r"\b(?:clos(?:es?|ed|ing)|settles?|settled|done|answered|ticked|no (?:more|longer))\b",
    re.IGNORECASE,
)
#: A sentence that refers to the one before it: "I put it down as open point 5".
MEANS_BEFORE: Final = re.compile(
    r"^\W*(?:\w+ ){0,3}(?:it|that|this|these|them|[\"\u201c])", re.IGNORECASE
)
#: A point of a numbered list, in a sentence of its own.
NUMBERED: Final = re.compile(r"^\W*\(?\d{1,3}[.):]")
#: What somebody says they will do.
PROMISE: Final = re.compile(
    r"\b(?:i['\u2019]ll|i will|we['\u2019]ll|we will|i promise to|i(?:['\u2019]m| am) (?:going"
    r"|planning) to|we(?:['\u2019]re| are) (?:going|planning) to|i(?:['\u2019]m| am) gonna"
    r"|i plan to|we plan to)\b",
    re.IGNORECASE,
)
#: What does not work, or is not understood.
TROUBLE: Final = re.compile(
    r"\b(?:still (?:getting|seeing (?:the|an?|this)|failing|fails|broken|not working|doesn"
    r"|can['\u2019]t)|keeps? (?:getting|failing|crashing|happening|throwing)|(?:does|do|did|is"
    r"|was)n['\u2019]t work(?:ing)?|not working|can['\u2019]t (?:figure|get|seem|find out)"
    r"|couldn['\u2019]t (?:figure|get|find)|having (?:trouble|issues|problems|a hard time)"
    r"|running into|(?:i['\u2019]m|i am) (?:stuck|struggling|getting (?:an?|the"
    r"|this)\b[^.;]{0,40}?(?:error|exception"
    r"|warning|failure|timeout|crash|warnings|errors))"
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
#: Attempts and fears, which settle nothing.
TRYING: Final = re.compile(
    r"\b(?:trying|try) to\b|\b(?:concerned|worried|not sure)\b", re.IGNORECASE
)
#: Suppositions, which are neither a problem nor a report.
SUPPOSED: Final = re.compile(
    r"\b(?:if|when|whenever|in case|unless|could|couldn['\u2019]t|would)\b",
    re.IGNORECASE,
)
#: Words that invalidate a report: not done, or not yet.
NOT_DONE: Final = re.compile(
    r"\b(?:if|when|whenever|once|until|till|unless|before|after|as soon as|in case|could|would"
    r"|should"
    r"|must|to be|not|never|almost|nearly|half)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
#: The start of a question that asks somebody to do or tell something.
ASKING: Final = re.compile(
    r"^\W*(?:(?:so|and|but|also|hmm),? )?(?:can|could|would|will|do|does|should|is|are)\b",
    re.IGNORECASE,
)
#: A report that something is done.
DONE: Final = re.compile(
    r"\b(?:(?P<by>(?:i|we)(?:['\u2019]ve| have)?(?: (?:just|already|finally|now|also))? (?:fixed"
    r"|resolved|solved|completed|finished|implemented|deployed|added|merged|shipped|integrated"
    r"|sorted|figured out|managed to|passed|signed|submitted|sent|booked|bought|updated"
    r"|upgraded|migrated|got .{1,40} working))|(?:has|have|was|were|is|are) (?:now |been "
    r"|finally )*(?:fixed|resolved|solved|completed|finished|deployed|merged|implemented)\b"
    r"|now works?\b|works now\b|no longer (?:fails|happens|occurs))",
    re.IGNORECASE,
)
_DID: Final = (
    "done|did|fixed|finished|completed|shipped|merged|deployed|sent|closed|resolved|sorted|tested|ticked"
    "|uploaded|delivered|submitted|signed|booked|paid|built|written|published|renewed|cancelled"
    "|cleaned|ordered|removed|replaced|installed|confirmed|approved|reviewed|returned|added|updated"
)
#: Possible reports that something is done, if something similar was open.
SETTLES: Final = re.compile(
    rf"^\W*(?:and |ok(?:ay)?,? |so |finally,? )?(?P<first>(?:{_DID}|closing|pushing|sending"
    r"|attaching|uploading|answered|pushed|wrote|made|called|asked|attached)\b(?! (?:you|to)\b))"
    rf"|\b(?P<by>(?:i|we)(?:['\u2019]ve| have)?(?: (?:just|already|finally|now|also|even))?"
    rf" (?:{_DID}|wrote|made|ran|set up|created|called|asked|talked|told|checked|pushed|attached"
    r"|changed|moved|read))\b"
    rf"|\b(?:is|are|was|were|['\u2019]s|has been|have been|got)(?: (?:now|then|all|already|also"
    rf"|finally|both))* (?:{_DID}|ready|in place|ticked off|live|settled|back)\b"
    r"|\b(?:that |which |this )?(?:closes|settles|answers)\b|\b(?:answered|replied|arrived"
    r"|agreed)\b",
    re.IGNORECASE,
)
#: A point of a list whose last word says that it is done: "seasons: built."
ENDED: Final = re.compile(rf"[:,] (?:{_DID})\W*$", re.IGNORECASE)
#: Only the report that the last item is done.
BARE_DONE: Final = re.compile(
    r"^\W*(?:(?:ok|okay|yes|yep|and|all|now|it|that|this|both|everything|s|m|is|are|was"
    r"|['\u2019]s"
    r"|i['\u2019]m)\W+"
    rf"){{0,4}}(?:{_DID})(?: (?:it|that|them))?(?:\W+(?:now|too|as well|already|today|just now"
    rf"|thanks"
    r"|thank you))*\W*$",
    re.IGNORECASE,
)
#: A decision.
DECIDED: Final = re.compile(
    r"^(?:decision(?: \d+)?|decided|agreed) ?:|\b(?:board|team|council|committee|management"
    r"|client)"
    r" (?:unanimously )?(?:decides?|decided|agreed|approved)\b|"
    r"\b(?:(?:i|we)(?:['\u2019]ve| have)?(?: (?:just|already|finally|now|also))? (?:decided"
    r"|chosen|chose|opted|picked(?! up)|settled on|agreed|switched|migrated|moved (?:from \S+ to"
    r"|over to)|went with|going with|committed to)|(?:i|we)(?:['\u2019]ll| will| am|['\u2019]m"
    r"|['\u2019]re) (?:going to go with|go with|going with|stick (?:to|with)"
    r"|switch(?:ing)? to)|(?:decided|agreed) (?:to|on|that|against)|decision (?:is|was) to)\b",
    re.IGNORECASE,
)
#: A decision of the speaker, alone or with others; not what others did or may do.
WE_DECIDED: Final = re.compile(
    r"^(?:decision(?: \d+)?|decided|agreed) ?:|\b(?:i|we)(?:['\u2019]ve| have)?(?: (?:just|already"
    r"|finally|now|also|all|both))?(?: (?:decided|chose|chosen|opted|settled on|agreed (?:to|on"
    r"|that)|picked(?! up)|switched to|migrated to|went with|committed to)\b)",
    re.IGNORECASE,
)
#: What somebody wants to be so from now on.
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
#: A date that is reached, or due.
MILESTONE: Final = re.compile(
    r"\b(?:deadline|due (?:on|by|date)|milestone|launch(?:es|ed|ing)?|release(?:d)?|sprint \d"
    r"|first sprint|go live|kick-?off|scheduled (?:for|on)|target(?:s|ing|ed)? completion"
    r"|by (?:the end of|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|next (?:week|month"
    r"|year)))",
    re.IGNORECASE,
)
#: A change in figures.
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
#: The day by which a point of a plan is due.
DAY: Final = re.compile(
    r"\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?) \d|\b\d{1,2}(?:st|nd|rd|th)?\.? (?:jan|feb|mar"
    r"|apr|may"
    r"|jun|jul|aug|sep|oct|nov|dec)|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b"
    r"|\b\d{4}-\d\d-\d\d\b",
    re.IGNORECASE,
)
#: A report, by anyone, that something is changed now.
FIXED: Final = re.compile(
    r"\b(?:has been|have been|is now|are now|was|were) (?:fixed|resolved|updated|removed"
    r"|replaced)\b|\b(?:fixed|resolved) the\b",
    re.IGNORECASE,
)
#: "I have to say" is no task.
NO_TASK: Final = re.compile(
    r"\b(?:say|admit|know|ask|agree|laugh|remember when|tell you|hand it|see (?:it|that|them)"
    r"|appreciate|enjoy|relax|have fun|stay|believe|take (?:breaks|care|time|it easy)"
    r"|be (?:kind|patient"
    r"|proud|yourself)|keep (?:going|it up)|push|slow down|prepare emotionally|trust"
    r"|do what (?:i|we) can"
    r"|support each)\b",
    re.IGNORECASE,
)
#: "All that I have to do" names no task.
NO_TASK_BEFORE: Final = re.compile(
    r"\b(?:how (?:much|many)|what|which|whatever|where|why)\b[\w ]{0,40}$"
    r"|\b(?:all|everything|anything|that|work|when|so|until)\W+$|^\W*to [^,]{0,80}, $"
    r"|\bif\b[^,]{0,80}, (?:then )?$",
    re.IGNORECASE,
)
#: Words that make "I'll" a forecast, a doubt or somebody else's words.
NO_PROMISE_BEFORE: Final = re.compile(
    r"\b(?:if|whether|sign that|sure|hope|hoping|hopefully|guess|bet|maybe|worried|afraid"
    r"|wonder\w*"
    r"|knows?|when|until|examples?:?)(?:,| that)? (?:if )?[\"\u201c\u2018']?$|[\"\u201c\u2018]$",
    re.IGNORECASE,
)
#: Words after "I'll" that make no promise.
NO_PROMISE: Final = re.compile(
    r"^(?:\W*\w+){0,3}?\W*(?:never forget|always (?:remember|be|love|cherish)|be (?:here|there"
    r"|rooting|able|happy|glad|fine|ok|okay|honest)|help you|help with|guide|walk you|show you"
    r"|provide|let you|assist|see you|talk to you|catch you|miss|say|admit|take it|do my best"
    r"|try my best|keep that in|need|have to|assume|explain|outline|break)\b",
    re.IGNORECASE,
)
#: A vow, a hope or a forecast, which is never completed.
VOW: Final = re.compile(
    r"^\W*(?:(?:definitely|just|certainly|always|only|still|totally|probably"
    r"|also) )*(?:keep(?: on)? \w+ing\b|keep you\b|think about\b|keep (?:it up|at it|my|our"
    r"|that|this|pushing)\b|never\b"
    r"|stay\b|continue\b|go on\b|stick (?:up|by|together)\b|make (?:it\b|my|our|a difference"
    r"|some|this (?:work|happen))|rock\b|push\b|fight\b|chase\b|reach (?:my|our|for)\b"
    r"|reach out\b|work (?:hard|through)\b|remember\b|cherish\b|treasure\b|love\b|appreciate\b"
    r"|enjoy\b|try my\b|do (?:my|our|what)\b|take (?:a shot|your advice)\b|give (?:it|you"
    r"|up)\b|be\b(?! (?:back|sending|bringing))|get (?:'em|them|through|there)\b"
    r"|think of (?:him|her|them|you|it)\b|let it\b|see (?:what|how|if|where)\b|have (?:to see"
    r"|so|fun|a (?:blast|great|good))\b|find (?:a (?:way|place)|things)\b|ever\b|start to\b"
    r"|go back to\b|make sure (?:to )?(?:remember|have|reach|i)\b|come true\b|take advantage\b)",
    re.IGNORECASE,
)
#: Words that make a promise one for later, not an announcement of the next sentence.
LATER: Final = re.compile(
    r"\b(?:tomorrow|tonight|later|next (?:time|week|month|sprint|release|step)|this (?:evening"
    r"|afternoon"
    r"|week|weekend)|in the (?:morning|evening|afternoon)|by (?:the end|monday|tuesday|wednesday"
    r"|thursday|friday|saturday|sunday|\d)|on (?:monday|tuesday|wednesday|thursday|friday"
    r"|saturday"
    r"|sunday)|as soon as|get back to you|once (?:the|it|that|we)|after (?:the|that|it)"
    r"|when you (?:ask|inquire|need|want)|always|from now on|every time|whenever"
    r"|in (?:all |my )?future|going forward)\b",
    re.IGNORECASE,
)
#: An offer, or a promise on a condition that may never come.
OFFER: Final = re.compile(
    r"\b(?:if (?:you|i|we|it|there|any)|in case|let me know|feel free|just ask|would you like"
    r"|please|give me)\b|(?:^\W*|, |\band )(?:just )?(?:provide|share|send) (?:the|your|me)\b",
    re.IGNORECASE,
)
