"""The contract between a program and the workers that run its functions: names, first bytes of results, and errors."""

from __future__ import annotations

SIGNATURE_ATTRIBUTE = "__gridloom__"
"""Attribute of a declared function that holds its signature."""

FUNCTION = "python/run"
"""Name of the function on the grid."""
TASK = "task"
"""The name of a function that runs a task on results of others begins so; the number of results follows."""
RESULTS = (1, 4, 16, 64)
"""Largest numbers of results that such functions take."""
STREAM = "python/stream"
"""Class of the object that is a stream."""
VALUE = b"v"
"""First byte of the result of a call: the pickled value follows."""
ERROR = b"e"
"""First byte of the result of a failed call. The exception follows, in the format of the module `raised`."""
END = b"."
"""Result of a stream after its last value."""
PATH_VARIABLE = "GRIDLOOM_PYTHON_PATH"
"""Folders in which workers of `gridloom.local` look for modules too: those of the program."""
ARGUMENTS_VARIABLE = "GRIDLOOM_PYTHON_ARGUMENTS"
"""``sys.argv`` of the program in JSON, for workers of `gridloom.local`."""
TOKEN_BYTES = 16
"""Length of the token that identifies the setup of a call; the pickled initializer and its arguments follow."""


class CannotLoad(Exception):
    """The function or an argument cannot be unpickled here."""


class CannotImport(CannotLoad):
    """The function or an argument needs a module that is missing here. Another server may have it."""


class OtherVersion(CannotLoad):
    """The function or an argument has code of another version of Python. Another server may have that version."""


def class_names(*classes: type) -> tuple[str, ...]:
    """Qualified names of classes."""
    return tuple(f"{one.__module__}.{one.__qualname__}" for one in classes)
