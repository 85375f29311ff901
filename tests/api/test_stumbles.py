"""What newcomers tried first works, or says what would."""

import pytest

from hiermem import Limits, Memory, Message, StoreError, UsageError
from hiermem.models import model_by_name


def talk():
    return [Message.user(f"Pump {n} leaks, says Ada.") for n in range(6)]


def test_one_index_or_several_are_pinned_and_erased():
    with Memory.open(":memory:") as memory:
        session = memory.session("pumps")
        session.append(talk())
        session.pin([0, 2])
        session.pin(4)
        assert {pin.index for pin in session.pins()} == {0, 2, 4}
        session.unpin([0, 4])
        assert {pin.index for pin in session.pins()} == {2}
        assert session.erase(0).indices == (0,)
        assert session.quarantine(1).indices == (1,)
        assert session.erase([2, 3]).indices == (2, 3)
        for wrong in ("0", None, 1.5, [True]):
            with pytest.raises(UsageError, match="ind"):
                session.erase(wrong)
            with pytest.raises(UsageError, match="ind"):
                session.pin(wrong)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"make the folder \S*/no/such first"):
        Memory.open(tmp_path / "no" / "such" / "chat.db")


def test_a_model_of_ollama_is_named_as_the_docs_say():
    """Broken, the first local model that somebody tries is refused as unknown."""
    pytest.importorskip("openai")
    assert model_by_name("ollama:qwen3:8b").name == "qwen3:8b"
    with Memory.open(":memory:", llm="ollama:qwen3:8b") as memory:
        session = memory.session("pumps")
        session.append(Message.user(f"Pump {n} leaks. " * 90) for n in range(60))
        report = session.update(limits=Limits(calls=1))
        (item,) = memory.run(report.run_id).items
        assert "127.0.0.1:11434" in " ".join(item.reasons)
    with pytest.raises(UsageError, match="ollama:"):
        model_by_name("olama:qwen3:8b")


def test_an_embedder_of_another_signature_is_told_how_it_was_called(caplog):
    """Broken, an author reads "ended in TypeError" and does not know what was called."""

    class Embedder:
        name, dimension, remote = "e", 8, False

        async def embed(self, texts):
            return [[1.0] * 8 for _ in texts]

    with Memory.open(":memory:", embedder=Embedder()) as memory:
        memory.session("pumps").append(talk())
        memory.session("pumps").update()
        memory.session("pumps").search("pump")
    assert "unexpected keyword argument 'kind'" in caplog.text
    assert "embed(texts, kind=…)" in caplog.text
    assert "Pump" not in caplog.text
