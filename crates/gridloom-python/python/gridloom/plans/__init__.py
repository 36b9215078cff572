"""Plans and reports of groups, and heuristics of a program."""

from .heuristic import Problem, ProblemDatum, ProblemServer, ProblemTask
from .plan import Alternative, ClientMemory, Explanation, Plan, Step, TaskRecord, TransferRecord
from .report import Difference, Report

__all__ = [
    "Alternative",
    "ClientMemory",
    "Difference",
    "Explanation",
    "Plan",
    "Problem",
    "ProblemDatum",
    "ProblemServer",
    "ProblemTask",
    "Report",
    "Step",
    "TaskRecord",
    "TransferRecord",
]
