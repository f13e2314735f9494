"""The demo corpus: 48 documents and 224 questions in seven domains, written for this project.

`documents.jsonl` and `questions.jsonl` are read with `data_prep.readers.read_dataset("demo")`. The town, the
message broker and the cargo bike are invented; the other texts tell facts about the real world, for testing retrieval
and not, in the medical ones, for advising patients.
"""

from pathlib import Path

LABELS = Path(__file__).parent / "labels.parquet"
"""The label table of the whole corpus, made by `corag label --config configs/demo.yaml --data demo`."""
