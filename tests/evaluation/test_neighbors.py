"""What is printed of neighbors; `tests/test_datastore.py` finds those of a trained model."""

from nmt.evaluation.neighbors import Neighbor, neighbors_text


def test_a_line_for_each_neighbor() -> None:
    first = Neighbor(0.937, "a cat .", ["eine", "Katze", "."], 1)
    second = Neighbor(0.05, "a dog", ["ein", "Hund"], 2)
    found = [("▁Katze", [first, second]), ("</s>", [second]), ("▁猫", [])]
    assert neighbors_text(found).splitlines() == [
        "▁Katze  94%  eine [Katze] .  <-  a cat .",
        "         5%  ein Hund [</s>]  <-  a dog",
        "</s>     5%  ein Hund [</s>]  <-  a dog",
    ]
    assert neighbors_text([]) == ""


def test_a_terminal_obeys_nothing_of_the_text() -> None:
    hostile = Neighbor(0.5, "\x1b[2Ja\n" + "b" * 5_000, ["\u202ec"], 0)
    line = neighbors_text([("▁\x1b", [hostile])])
    assert line.startswith("▁�  50%  [�c]  <-  �[2Ja�bbb")
    assert len(line) < 1_100
