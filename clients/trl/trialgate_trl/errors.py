"""The one error of this package."""


class RolloutError(Exception):
    """Training cannot go on before somebody changes something. The message says what happened and what to do."""
