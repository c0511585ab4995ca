"""The names of the transforms there are. What they do is in `stages.transforms`, which has one for each name."""

from typing import Literal

TransformName = Literal["metric_discharge"]
