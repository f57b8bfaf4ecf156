"""Eval sets: what is asked at every point, and how an answer is scored."""

from tui_tuner.evals.evalset import BadEvalSet, EvalSet, Item, file, load, sample, shipped
from tui_tuner.evals.scorers import SCORERS, score

__all__ = ["SCORERS", "BadEvalSet", "EvalSet", "Item", "file", "load", "sample", "score", "shipped"]
