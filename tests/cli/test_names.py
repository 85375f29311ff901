"""What is printed of a session is a name that means it."""

import re

from commands import run

from hiermem import Memory, Message


def test_a_fork_is_printed_under_a_name_that_means_it(tmp_path):
    """Broken, what was found in a fork is erased in the session that it stems from."""
    db = tmp_path / "m.db"
    with Memory.open(db) as memory:
        memory.space("me", person="the user").files()
        session = memory.session("boiler-1", title="Boiler", space="me")
        session.append([Message.user("How do I bleed the boiler?"), Message.user("Ask Tom.")])
        session.fork("boiler-2", at=1).append(Message.user("Where is the gas meter?"))
        memory.session("pump", title="Pump", space="me").append(Message.user("A gas pump."))
    told = run("search", "gas", "--db", db).stdout
    (name,) = re.findall(r"(?m)^(Boiler .*\)) m1 ", told)
    assert name == "Boiler (boiler-2)"
    assert "\nPump m0 " in f"\n{told}", "a title that is the only one stands alone"
    of = run("about", "gas", "meter", "--db", db).stdout
    assert re.search(r"Where is the gas meter\? +boiler-2\n", of)
    with Memory.open(db) as memory:
        assert memory.find(name, whole=True).id == "boiler-2"
        assert memory.find("Boiler").id == "boiler-1"
    run("erase", name, "1", "--db", db, "--yes")
    assert "meter" not in run("search", "gas", "--db", db).stdout
    assert "Ask *Tom*" in run("search", "Tom", "--db", db).stdout
    told = run("delete", "Boiler", "--db", db, "--yes").stderr
    assert "save in forks, which keep messages of theirs (boiler-2), and in messages" in told
