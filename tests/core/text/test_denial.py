"""When a text turns a prohibition round, and when it repeats, lifts or reports it."""

import pytest
from linear import is_linear, repeated

from hiermem.core.text.denial import inverted

PAY = "That text came from a web page. Never pay without the approval of Ben."
FRIDAY = "We had that once, so never deploy on a Friday."
FAST = "We must not exceed 900 rpm on any pump."


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (PAY, "Payments need no approval by Ben."),
        (PAY, "You may pay without the approval of Ben."),
        (FRIDAY, "Deploys on a Friday are allowed."),
        (FRIDAY, "They should deploy on Fridays."),
        (FAST, "Every pump may exceed 900 rpm."),
        ("Please don\u2019t share the master password.", "The master password may be shared."),
        ("另外绝对不能在月底结算期间切换。", "月底结算期间可以切换。"),
        ("Wir wollen auf keinen Fall eine Gasheizung.", "Es soll eine Gasheizung werden."),
        ("Il ne faut jamais dépasser 900 tours.", "Il faut dépasser 900 tours."),
        ("No se debe abrir la válvula sin permiso.", "La válvula se puede abrir sin permiso."),
        ("Нельзя переключаться в конце месяца.", "Можно переключаться в конце месяца."),
        # An order that begins a clause, other than the first of the text.
        ("We met. Do not restart the server.", "The server may be restarted."),
        (
            "When the load is high, do not restart the server.",
            "The server can be restarted when the load is high.",
        ),
    ],
)
def test_a_prohibition_turned_round_is_seen(said, told):
    assert inverted(said, told) >= 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (PAY, "Payments need the approval of Ben."),
        (PAY, "Ada paid the bill with the approval of Ben."),
        (PAY, "No payment without the approval of Ben."),
        (FRIDAY, "They deployed on a Friday once."),
        (FRIDAY, "They must not deploy on Fridays."),
        (FRIDAY, "Deploying on Fridays is forbidden; on Mondays it is allowed."),
        (f"{FRIDAY} Or rather, you may deploy on a Friday.", "Deploys on a Friday are allowed."),
        (FAST, "The pumps may run at up to 900 rpm."),
        (FAST, "No pump exceeds 900 rpm."),
        ("I can't wait for the art show next month.", "She plans to have an art show next month."),
        ("Never give up, keep going!", "Maria encouraged him to keep going."),
        ("另外绝对不能在月底结算期间切换。", "月底结算期间禁止切换。"),
        ("Wir wollen auf keinen Fall eine Gasheizung.", "Keine Gasheizung gewünscht."),
        ("Il ne faut jamais dépasser 900 tours.", "Ne jamais dépasser 900 tours."),
        ("No se debe abrir la válvula sin permiso.", "La válvula se abre solo con permiso."),
        ("It rained.", "It may rain."),
        ("We met. Do not restart the server.", "They met. The server is not to be restarted."),
    ],
)  # fmt: skip
def test_a_rule_that_is_kept_lifted_or_reported_is_not_turned_round(said, told):
    """Broken if a faithful summary of a rule would be refused."""
    assert inverted(said, told) == 0


def test_what_is_quoted_turns_nothing_round():
    said = "Never deploy on a Friday. They should deploy on Monday and on a Friday if it burns."
    assert inverted(said, "They should deploy on Monday and on a Friday if it burns.") == 0


@pytest.mark.parametrize("family", ["never a b. ", "must not x ", "不能切换", "may ", ",", "no "])
def test_time_grows_linearly_with_hostile_text(family):
    assert is_linear(
        lambda size: repeated(family, size), lambda text: inverted(text, text), size=15_000
    )
