"""Training of the composite reranker on the outcomes of label tables."""
