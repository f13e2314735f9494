"""What is claimed of the search, each with its target."""

from __future__ import annotations

from dataclasses import dataclass

from corag_agent.evaluation.report.wording import AGENT, NAIVE, TREE, UPPER, number, percent, signed_percent

TIMES = ("seconds_search", "seconds")
_PAPERS, _OURS = "The paper's claim (arXiv:2411.00744)", "This project's target"


@dataclass(frozen=True, slots=True)
class Claim:
    """A comparison that has a target.

    Attributes:
        baseline: Method that is compared with.
        metric: What is compared.
        rival: The baseline within a sentence.
        title: For the table.
        sentence: What a figure says; names `own`, `other`, `value`, `more` and `rival`.
        threshold: Of the ratio own / other.
        rising: Whether the target is a ratio above the threshold.
        share: Whether the ratio is shown as a share, and not as a difference.
        paired: Whether the tree search is compared with the baseline of the same reranker, over all rerankers.
        methods: Whose claim it is.
        of_paper: Whether the paper claims it, of its own data and language models; else the target is this project's.
        chunks: Size of the store that the target is about; None for that of the questions' own documents.
    """

    baseline: str
    metric: str
    rival: str
    title: str
    sentence: str
    threshold: float
    rising: bool = True
    share: bool = False
    paired: bool = False
    methods: tuple[str, ...] = (TREE, AGENT)
    of_paper: bool = False
    chunks: int | None = None

    @property
    def target(self) -> str:
        """The target, in words."""
        bound = "at least" if self.rising else "at most"
        if self.share:
            return f"{bound} {number(100 * self.threshold, 0)} %"
        return "above 0" if self.threshold == 1 else f"{bound} +{number(100 * self.threshold - 100, 0)} %"

    @property
    def whose_target(self) -> str:
        """The target with whose it is, to begin a sentence."""
        return f"{_PAPERS if self.of_paper else _OURS}: {self.target}"

    def shown(self, ratio: float) -> str:
        """A ratio as this claim shows it."""
        return percent(ratio) if self.share else signed_percent(ratio - 1)


# The agent's have the reranker and settings that it predicts, those of the tree search its own fixed ones.
_MATCHED, _CLIMB = "NaiveRAG at the same tokens", "the greedy climb"
_ROUGE = "Its ROUGE-L is {value} {more} that of {rival}: {own} against {other}."
CLAIMS = (
    Claim(NAIVE, "rougeL", "NaiveRAG", "ROUGE-L against NaiveRAG", _ROUGE, 1.3, of_paper=True),
    Claim(
        NAIVE,
        "prompt_tokens",
        "NaiveRAG",
        "Tokens against NaiveRAG",
        "It spends {own} tokens on chunks where {rival} spends {other}: {value} of them.",
        0.5,
        rising=False,
        share=True,
    ),
    Claim("best_single", "rougeL", "the best single chunk", "ROUGE-L against the best single chunk", _ROUGE, 1),
    Claim("naive_matched", "rougeL", _MATCHED, f"ROUGE-L against {_MATCHED}", _ROUGE, 1, methods=(TREE,)),
    Claim("agent_matched", "rougeL", _MATCHED, f"ROUGE-L against {_MATCHED}", _ROUGE, 1, methods=(AGENT,)),
    Claim("greedy_climb", "rougeL", _CLIMB, f"ROUGE-L against {_CLIMB}", _ROUGE, 1, methods=(TREE,)),
    Claim("agent_climb", "rougeL", _CLIMB, f"ROUGE-L against {_CLIMB}", _ROUGE, 1, methods=(AGENT,)),
    Claim("raptor", "rougeL", "RAPTOR", "ROUGE-L against RAPTOR", _ROUGE, 1),
    Claim(
        TREE,
        "rougeL",
        "the tree search with",
        "ROUGE-L of the agent against each fixed reranker",
        _ROUGE,
        1,
        methods=(AGENT,),
        of_paper=True,
    ),
    Claim(
        UPPER,
        "objective",
        "Upper",
        "Share of Upper's objective",
        "By the same reranker it reaches {value} of the objective of the best of all orders: {own} of {other}.",
        0.99,
        share=True,
        paired=True,
        methods=(TREE,),  # the agent has no reranker of its own
    ),
    Claim(
        UPPER,
        "rougeL",
        "Upper",
        "Share of Upper's ROUGE-L",
        "Its ROUGE-L is {value} of what the best of all orders gives: {own} of {other}.",
        0.95,
        share=True,
    ),
    Claim(
        UPPER,
        "seconds_search",
        "Upper",
        "Share of Upper's search time",
        "Choosing the chunks takes {own} ms where trying all orders takes {other} ms: {value} of it.",
        0.1,
        rising=False,
        share=True,
        paired=True,
        methods=(TREE,),  # the agent has no reranker of its own
        of_paper=True,
    ),
    Claim(
        NAIVE,
        "seconds",
        "NaiveRAG",
        "Time added to the plain pipeline at 100,000 chunks",
        "From question to answer it takes {own} ms, LLM included, and {rival} {other} ms: {value} {more}.",
        1.1,
        rising=False,
        paired=True,
        of_paper=True,
        chunks=100_000,
    ),
)
