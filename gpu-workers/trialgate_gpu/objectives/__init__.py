"""The objectives that a run file can name. A new one is a module here and a line in this list."""

from . import cispo, grpo, gspo, rloo
from .objective import Objective

OBJECTIVES: dict[str, Objective] = {each.name: each for each in (grpo.GRPO, gspo.GSPO, cispo.CISPO, rloo.RLOO)}

__all__ = ["OBJECTIVES", "Objective"]
