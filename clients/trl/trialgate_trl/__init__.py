"""Trains with TRL on agents whose calls Trialgate's gateway answers and records.

docs/trl.md shows the lines that a program needs.
"""

from .agents import Agent, NoSuchTask, Trial, sandboxed
from .connect import Trialgate
from .errors import RolloutError
from .weights import Weights
from .worker import Worker

__all__ = ["Agent", "NoSuchTask", "RolloutError", "Trial", "Trialgate", "Weights", "Worker", "sandboxed"]
