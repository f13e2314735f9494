from dataclasses import replace
from typing import Any

import pytest

from corag_agent.commands.search import describe, printable, selected_as_dict
from corag_search.agent import Prediction
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.pipeline import Selected


def made(**changes: Any) -> Selected:
    plain = Selected(
        query="How tall is it?", chunks=(), order=(), reranker="bm25", config=SearchConfig(budget=100, iterations=5),
        value=0.5, objective=0.4, cost=0, evaluations=1, prediction=None, timings={}, trace=None,
    )  # fmt: skip
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("fallback", "said"), [(None, "(configured)"), (False, "(agent, confidence 0.62)"), (True, "(agent, fallback, con")]
)
def test_who_chose_the_settings(fallback: bool | None, said: str) -> None:
    chosen = None
    if fallback is not None:
        chosen = Prediction("bm25", 5, 0.5, 0.1, {"bm25": 0.62, "maxsim": 0.38}, 0.62, fallback)
    selected = made(prediction=chosen)
    assert said in describe(selected)
    assert selected_as_dict(selected)["fallback"] is fallback


def test_a_choice_that_no_score_supports_is_said() -> None:
    said = "bm25 gives no combination more than 0: the fewest tokens won"
    assert said in describe(made(value=0.0)) and said not in describe(made())


def test_writing_stays_as_it_is() -> None:
    for text in ("330\u00a0m,\ttall", "你\u3000好", "می\u200cخواهم", "क्\u200dष", "one\ntwo"):
        assert printable(text) == text


def test_a_terminal_gets_no_commands() -> None:
    shown = describe(made(chunks=(Chunk("a\x1b[2J", "red \x1b[31m and\nbell\x07, 光 é", 3),)))
    assert shown.endswith("[1] a?[2J (3 tokens): red ?[31m and bell?, 光 é".replace("?", "\N{REPLACEMENT CHARACTER}"))
