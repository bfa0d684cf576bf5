"""Prices of steps for the tests: round ones, which are easy to add up by hand."""

from engine.costs import CostModel, FitError

NO_ERROR = FitError(1, 0.0, 0.0, 0.0)
ROUND = CostModel(((1, 1.0), (2, 2.0)), 10.0, 0.0, 0.0, NO_ERROR)
"""A prefill takes 10 s, a step of one row 1 s, of two rows 2 s."""
