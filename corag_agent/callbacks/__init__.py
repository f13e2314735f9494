"""What `corag fit` and `corag test` write beside checkpoints and curves."""

from corag_agent.callbacks.confusion import ConfusionMatrix
from corag_agent.callbacks.lineage import WandbLineage
from corag_agent.callbacks.projection import FeatureProjection

__all__ = ["ConfusionMatrix", "FeatureProjection", "WandbLineage"]
