"""Monte Carlo tree search over ordered chunk combinations (arXiv:2411.00744, Algorithms 1–3).

One concept a file: `problem` (candidates, costs, limits), `tree` (node storage), `selection` (the way down),
`expansion` (all affordable children), `update` (scores back up), `final_rule` (which node is returned),
`scores` (each combination is scored once), `search` (the loop, for one query or many in lockstep).
"""

from corag_search.policy_tree.search import search_policy_tree, search_policy_trees

__all__ = ["search_policy_tree", "search_policy_trees"]
