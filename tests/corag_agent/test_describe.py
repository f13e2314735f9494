import pytest

from corag_agent.commands.search import describe, selected_as_dict
from corag_search.agent import Prediction
from corag_search.config import SearchConfig
from corag_search.pipeline import Selected


@pytest.mark.parametrize(
    ("fallback", "said"), [(None, "(configured)"), (False, "(agent, confidence 0.62)"), (True, "(agent, fallback, con")]
)
def test_who_chose_the_settings(fallback: bool | None, said: str) -> None:
    chosen = None
    if fallback is not None:
        chosen = Prediction("bm25", 5, 0.5, 0.1, {"bm25": 0.62, "maxsim": 0.38}, 0.62, fallback)
    selected = Selected(
        query="How tall is it?", chunks=(), order=(), reranker="bm25", config=SearchConfig(budget=100, iterations=5),
        value=0.0, objective=0.0, cost=0, evaluations=1, prediction=chosen, timings={}, trace=None,
    )  # fmt: skip
    assert said in describe(selected)
    assert selected_as_dict(selected)["fallback"] is fallback
