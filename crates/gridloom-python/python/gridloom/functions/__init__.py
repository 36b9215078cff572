"""Functions that a program offers: declarations, annotations, and programs as functions."""

from .declare import Array, C, F, Out, function
from .file import File
from .program_run import ProgramFailed
from .programs import program

__all__ = [
    "Array",
    "C",
    "F",
    "File",
    "Out",
    "ProgramFailed",
    "function",
    "program",
]
