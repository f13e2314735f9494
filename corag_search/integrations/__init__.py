"""Adapters for other frameworks: what their retrievers returned goes in, the chosen items come out in the found order.

Each needs the extra of its name: `llamaindex`, `langchain`, `haystack`. Importing this package imports none of them.
"""
