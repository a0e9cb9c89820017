"""Lists the objectives that a run file can name. To add one, write a module here and add it to this list."""

from . import cispo, grpo, gspo, rloo
from .objective import Objective

OBJECTIVES: dict[str, Objective] = {each.name: each for each in (grpo.GRPO, gspo.GSPO, cispo.CISPO, rloo.RLOO)}

__all__ = ["OBJECTIVES", "Objective"]
