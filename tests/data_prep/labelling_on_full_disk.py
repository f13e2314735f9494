"""Runs `corag label` where no file may grow above a limit, as on a disk that is full.

    python -m tests.data_prep.labelling_on_full_disk

It imports once and forks for every run. Reads a run a line, `[LIMIT, [ARGUMENT, ...]]` as JSON, the limit in bytes or
null for none, and answers each with a line, `[EXIT_CODE, WHAT_IT_PRINTED]`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Sequence
from traceback import print_exc

from corag_agent.cli import main
from corag_search.embedders import load_embedder
from corag_search.tokenizers import load_tokenizer


def label(limit: int | None, arguments: Sequence[str]) -> tuple[int, str]:
    """One run in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 70  # of an error that the command does not turn into a line
        try:
            os.close(reading)
            os.dup2(writing, sys.stdout.fileno())
            os.dup2(writing, sys.stderr.fileno())
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            code = main(["label", *arguments])
        except BaseException:
            print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        printed = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), printed


if __name__ == "__main__":
    load_tokenizer("minilm")
    load_embedder("minilm").encode(["What every run imports is imported here."])
    for line in sys.stdin:
        sys.stdout.write(json.dumps(label(*json.loads(line))) + "\n")
        sys.stdout.flush()
