"""The picture of a search: its tree on a page of HTML that stands alone."""

from corag_search.tree_page.page import tree_page

__all__ = ["tree_page"]
