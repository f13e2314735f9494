"""Training of the composite reranker: the fit, the folds, and what is compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_agent.composite.card import rows_of
from corag_agent.composite.examples import Example
from corag_agent.composite.fitting import fit_composite
from corag_agent.composite.seen import of_splits, seen_of
from corag_agent.composite.sources import Source, one_each
from corag_agent.composite.training import TrainedComposite, write_composite
from corag_agent.composite.validation import COMPOSITE, compare_choosers, groups_of, held_out_predictions
from corag_agent.seen import Seen, digest_of_name
from corag_search.errors import InputError
from corag_search.rerankers.composite_model import PartIdentity, read_composite
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import separable_table


def make_example(
    features: np.ndarray, rouge: np.ndarray, documents: tuple[str, ...] = ("d",), cost: list[int] | None = None
) -> Example:
    """An example of one part, whose score is the first feature; its tree search chose the first order."""
    count = len(rouge)
    return Example(
        source="made",
        documents=documents,
        orders=tuple((i,) for i in range(count)),
        cost=np.array(cost or [100] * count),
        rouge=np.asarray(rouge, np.float64),
        scores=np.asarray(features, np.float64)[:, :1],
        features=np.asarray(features, np.float64),
        searched={"part": 0},
    )


def random_examples(count: int, seed: int, size: int = 5) -> list[Example]:
    generator = np.random.default_rng(seed)
    return [
        make_example(
            generator.normal(3, 2, (orders, size)), generator.uniform(0, 1, orders), documents=(f"d{number // 2}",)
        )
        for number, orders in enumerate(generator.integers(2, 7, count))
    ]


# ------------------------------------------------------------ the fit


@pytest.mark.parametrize("strength", [0.01, 0.3, 4.0])
def test_the_fit_minimises_what_it_says(strength: float) -> None:
    examples = random_examples(12, seed=1)
    model = fit_composite(examples, strength)

    def loss(weights: np.ndarray, bias: float) -> float:
        total = 0.0
        for example in examples:
            for features, rouge in zip(example.features, example.rouge, strict=True):
                predicted = bias + sum(weights * (features - model.center) / model.scale)
                total += (rouge - predicted) ** 2 / len(example.rouge) / len(examples)
        return total + strength * float(weights @ weights)

    least = loss(model.weights, model.bias)
    for direction in np.vstack([np.eye(5), -np.eye(5)]):
        assert loss(model.weights + 1e-3 * direction, model.bias) > least
    assert min(loss(model.weights, model.bias + step) for step in (-1e-3, 1e-3)) > least


def test_questions_count_alike_whatever_their_orders() -> None:
    once = [make_example(np.array([[0.0], [1.0]]), [0.2, 0.4]), make_example(np.array([[0.0], [2.0]]), [0.9, 0.1])]
    thrice = [make_example(np.repeat(once[0].features, 3, axis=0), np.repeat(once[0].rouge, 3)), once[1]]
    for one, other in zip(*(fit_composite(own).tensors().values() for own in (once, thrice)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_a_linear_truth_is_found_and_a_constant_feature_left_alone() -> None:
    generator = np.random.default_rng(0)
    examples = []
    for _ in range(30):
        features = np.hstack([generator.uniform(0, 1, (4, 2)), np.full((4, 1), 7.0)])
        examples.append(make_example(features, 0.2 + 0.5 * features[:, 0] - 0.1 * features[:, 1]))
    model = fit_composite(examples, strength=1e-9)
    assert model.weights[2] == pytest.approx(0, abs=1e-12) and model.scale[2] == 1
    unseen = np.array([[0.5, 0.5, 7.0], [1.0, 0.0, 7.0]])
    np.testing.assert_allclose(model.predict(unseen), [0.4, 0.7], atol=1e-6)


@pytest.mark.parametrize("strength", [0.0, -1.0, float("nan"), float("inf")])
def test_unusable_strength(strength: float) -> None:
    with pytest.raises(InputError, match="strength must be a finite number above 0"):
        fit_composite(random_examples(3, seed=0), strength)


# ------------------------------------------------------------ folds


def test_no_prediction_has_seen_its_group() -> None:
    examples = random_examples(12, seed=2)
    groups = groups_of(examples)
    assert groups.tolist() == [number // 2 for number in range(12)]
    predictions = held_out_predictions(examples, groups, folds=3, strength=0.3, seed=0)
    for group in range(6):
        # Other outcomes of the whole group: what is predicted for the group stays, what is predicted elsewhere moves.
        spoilt = [
            make_example(e.features, 1 - e.rouge, e.documents) if own == group else e
            for e, own in zip(examples, groups, strict=True)
        ]
        again = held_out_predictions(spoilt, groups, folds=3, strength=0.3, seed=0)
        same = np.array([np.array_equal(a, b) for a, b in zip(predictions, again, strict=True)])
        assert same[groups == group].all() and not same.all()
        fold = np.flatnonzero(same)  # the group's fold, which was trained without it
        rest = [e for i, e in enumerate(examples) if i not in fold]
        for at in fold:
            np.testing.assert_array_equal(predictions[at], fit_composite(rest, 0.3).predict(examples[at].features))


@settings(max_examples=20, deadline=None)
@given(st.integers(4, 14), st.integers(2, 2), st.integers(0, 5))
def test_folds_are_of_like_size_and_the_same_for_a_seed(count: int, folds: int, seed: int) -> None:
    examples = random_examples(count, seed=seed)
    groups = groups_of(examples)
    one, other = (held_out_predictions(examples, groups, folds, 0.3, seed) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True)) and all(len(own) for own in one)


@pytest.mark.parametrize("folds", [1, 7])
def test_folds_that_cannot_be_made(folds: int) -> None:
    examples = random_examples(12, seed=2)
    with pytest.raises(InputError, match=f"folds must be from 2 to the number of groups .*, 6, got {folds}"):
        held_out_predictions(examples, groups_of(examples), folds, 0.3, 0)


# ------------------------------------------------------------ the comparison


def test_the_comparison_by_hand() -> None:
    # Orders by score: first question rises with ROUGE-L, second falls; predictions are the other way round in it.
    examples = [
        make_example(np.array([[0.1], [0.2], [0.3]]), [0.2, 0.4, 0.9], ("a",), cost=[10, 20, 30]),
        make_example(np.array([[0.5], [0.6], [0.7]]), [0.8, 0.5, 0.3], ("b",), cost=[30, 30, 20]),
    ]
    predictions = [np.array([0.1, 0.2, 0.3]), np.array([0.7, 0.7, 0.1])]
    found = {c.name: c for c in compare_choosers(examples, predictions, ["part"], groups_of(examples))}
    assert {name: (c.rouge.tolist(), c.cost.tolist()) for name, c in found.items()} == {
        COMPOSITE: ([0.9, 0.8], [30.0, 30.0]),  # a tie: equal cost and length, so retrieval order
        "part: its tree search": ([0.2, 0.8], [10.0, 30.0]),
        "part: its highest score": ([0.9, 0.3], [30.0, 20.0]),
        "the fewest tokens": ([0.2, 0.3], [10.0, 20.0]),
        "the best of all (oracle)": ([0.9, 0.8], [30.0, 30.0]),
        "any, on average": ([pytest.approx(0.5), pytest.approx(1.6 / 3)], [20.0, pytest.approx(80 / 3)]),
    }
    # Ranks (1, 2, 3) against (1, 2, 3), and (2.5, 2.5, 1) against (3, 2, 1): 1 and 1.5 / √3.
    assert found[COMPOSITE].correlation == pytest.approx((1 + 1.5 / 3**0.5) / 2)
    assert found["part: its highest score"].correlation == pytest.approx(0.0)
    assert np.isnan(found["part: its tree search"].correlation)
    lead = found["part: its tree search"].lead
    assert (lead.mean, lead.low, lead.high, lead.questions) == (pytest.approx(0.35), 0.0, pytest.approx(0.7), 2)
    row = rows_of(list(found.values()))[1]
    assert row == ("part: its tree search", "0.500", "20", "–", "+0.350 (+0.000 to +0.700)")
    alone = compare_choosers(examples, predictions, ["part"], np.zeros(2, np.intp))
    assert rows_of(alone)[1][-1] == "+0.350"  # one group of documents gives no interval


def test_a_rule_that_holds_is_learned_and_chosen_by() -> None:
    generator = np.random.default_rng(4)
    examples = []
    for number in range(20):
        features = generator.normal(0, 1, (5, 3))
        rouge = np.clip(0.5 + 0.2 * features[:, 1] - 0.1 * features[:, 2], 0, 1)
        examples.append(make_example(features, rouge, (f"d{number}",)))
    groups = groups_of(examples)
    found = compare_choosers(examples, held_out_predictions(examples, groups, 5, 0.01, 0), ["part"], groups)
    rouge = {chooser.name: chooser.rouge.mean() for chooser in found}
    assert rouge[COMPOSITE] == pytest.approx(rouge["the best of all (oracle)"], abs=0.005)
    assert found[0].correlation > 0.95
    assert rouge["part: its highest score"] < rouge[COMPOSITE] - 0.1


# ------------------------------------------------------------ the directory


def test_what_is_written_is_read_again_and_equal_bytes_each_time(tmp_path: Path) -> None:
    examples = random_examples(12, seed=3)
    groups = groups_of(examples)
    predictions = held_out_predictions(examples, groups, 3, 0.3, 0)
    trained = TrainedComposite(
        model=fit_composite(examples),
        parts=(PartIdentity("bm25", {"k1": 1.2}, None),),
        choosers=compare_choosers(examples, predictions, ["part"], groups),
        by_source={},
        questions=12,
        orders=sum(len(example.orders) for example in examples),
        groups=6,
    )
    labels, training = {"made": {"generator": "g"}}, {"folds": 3, "strength": 0.3, "seed": 0}
    seen = Seen.of(["train", "val"], {"made": "123"}, ["made/q1"], ["d0", "d1"])
    for name in ("one", "other"):
        write_composite(trained, tmp_path / name, labels, training, seen)
    write_composite(trained, tmp_path / "one", labels, training, seen)  # an earlier one is replaced
    for file in ("model.safetensors", "config.json", "README.md"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()
    model, parts = read_composite(tmp_path / "one")
    assert parts == trained.parts and Seen.read(tmp_path / "one") == seen
    np.testing.assert_array_equal(model.predict(examples[0].features), trained.model.predict(examples[0].features))
    card = (tmp_path / "one" / "README.md").read_text()
    assert '| `bm25` | {"k1": 1.2} | – |' in card and f"| {COMPOSITE} |" in card and "bm25.best" in card
    assert "12 questions of the splits train, val, of 6 groups" in card
    (tmp_path / "other" / "mine.txt").write_text("x")
    with pytest.raises(InputError, match=r"also holds mine\.txt, which would be lost"):
        write_composite(trained, tmp_path / "other", labels, training, seen)


def test_one_for_all_or_one_for_each() -> None:
    assert one_each("data", ["a"], 3) == ["a"] * 3 and one_each("data", ["a", "b"], 2) == ["a", "b"]
    with pytest.raises(InputError, match="data must be one for all 3 label tables or one for each, got 2"):
        one_each("data", ["a", "b"], 3)


# ------------------------------------------------------------ what is held out


def made_source(name: str, rows: dict[str, tuple[str, list[str]]], data: str) -> Source:
    """A source of question → its split and documents."""
    table = separable_table(len(rows))
    renamed = dict(zip(table.questions["question_id"], rows, strict=True))
    scores = table.scores.assign(question_id=table.scores["question_id"].map(renamed))
    splits = {question: split for question, (split, _) in rows.items()}
    questions = table.questions.assign(question_id=list(rows), split=list(splits.values()))
    documents = {question: tuple(own) for question, (_, own) in rows.items()}
    return Source(name, data, LabelTable(scores, questions, table.fingerprint), {}, documents, {})


def sources_of_two_languages() -> list[Source]:
    english = {"a": ("test", ["A"]), "b": ("train", ["B"]), "c": ("val", ["C"]), "none": ("train", [])}
    chinese = {"a": ("train", ["A"]), "a2": ("train", ["A", "D"]), "d": ("train", ["D"]), "e": ("train", ["E"])}
    return [made_source("one", english, "en"), made_source("two", chinese, "zh")]


@pytest.mark.parametrize(
    ("splits", "questions"),
    [
        # Chinese questions about A, and D that one of them joins to it, are held out since an English one about A is.
        (["train", "val"], ["en/b", "en/c", "en/none", "zh/e"]),
        (["train"], ["en/b", "en/none", "zh/e"]),
        (["test"], ["en/a", "zh/a", "zh/a2", "zh/d"]),
        (["val"], ["en/c"]),
        (["test", "val", "train"], ["en/a", "en/b", "en/c", "en/none", "zh/a", "zh/a2", "zh/d", "zh/e"]),
    ],
)
def test_only_questions_of_the_splits_are_trained_on(splits: list[str], questions: list[str]) -> None:
    sources = of_splits(sources_of_two_languages(), splits)
    seen = seen_of(sources, splits, {"one": "1"})
    assert sorted(seen.questions) == sorted(map(digest_of_name, questions))
    assert [f"{s.data}/{q}" for s in sources for q in s.table.questions["question_id"]] == questions
    assert seen.splits == tuple(name for name in ("train", "val", "test") if name in splits)


@pytest.mark.parametrize(("splits", "named"), [(["train", "dev"], "got 'dev'"), ([], "got 'none'")])
def test_unknown_splits(splits: list[str], named: str) -> None:
    with pytest.raises(InputError, match=f"splits must be some of train, val, test, {named}"):
        of_splits(sources_of_two_languages(), splits)


def test_splits_without_a_question() -> None:
    with pytest.raises(InputError, match="no labelled question is of the splits val"):
        of_splits([made_source("one", {"a": ("train", ["A"])}, "en")], ["val"])


def test_what_has_been_seen() -> None:
    sources = of_splits(sources_of_two_languages(), ["train", "val"])
    seen = seen_of(sources, ["train", "val"], {})
    assert sorted(seen.documents) == sorted(map(digest_of_name, "BCE"))
    assert seen.knows("de", "unlabelled", ["X", "B"]) and seen.knows("en", "none", [])
    assert not seen.knows("zh", "a", ["A"]) and not seen.knows("zh", "none", []) and not seen.knows("en", "b2", ["X"])


def test_a_record_from_before_and_a_broken_one(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}")
    assert Seen.read(tmp_path) is None
    config.write_text('{"seen": {"splits": ["train"]}}')
    with pytest.raises(InputError, match="seen must have splits, tables, questions and documents"):
        Seen.read(tmp_path)
