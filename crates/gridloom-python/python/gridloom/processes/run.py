"""The functions of a program that a deployment can name, and how they are run."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable

from .. import _gridloom
from ..errors import UsageError
from .peers import Process

__all__ = ["ProcessRun", "process", "read_settings", "run_processes"]

_functions: dict[str, Callable[..., object]] = {}
_settings_are_read = False


@dataclasses.dataclass(frozen=True)
class ProcessRun:
    """Result of a run.

    Attributes
    ----------
    seconds : float
        Virtual time at the end, seconds; 0 for a real process.
    trace_hash : str or None
        Sums up everything that happened in a simulated run: equal for equal programs, platforms and seeds.
    """

    seconds: float
    trace_hash: str | None


def process(function: Callable[..., object]) -> Callable[..., object]:
    """Make a function one that a deployment can name. It gets its `Process`, and its arguments as strings."""
    name = function.__name__
    if _functions.setdefault(name, function) is not function:
        raise UsageError(f"two process functions are named '{name}'")
    return function


def read_settings(arguments: list[str] | None = None) -> list[str]:
    """Read the configuration and the levels of the log: command line, environment, file.

    `run_processes` does so unless this was called before. Call it for a program with options of its own, before it looks at
    them.

    Parameters
    ----------
    arguments : list of str, optional
        Where ``--set NAME=VALUE``, ``--log LEVELS`` and ``--config FILE`` are looked for, up to a ``--``. By default those of
        the program, ``sys.argv[1:]``, from which they are taken out.

    Returns
    -------
    list of str
        The other arguments.

    Raises
    ------
    InputError
        If an option lacks its value, a level is none, or the file cannot be read.
    """
    global _settings_are_read
    others = _gridloom.read_settings(sys.argv[1:] if arguments is None else list(arguments))
    if arguments is None:
        sys.argv[1:] = others
    _settings_are_read = True
    return others


def run_processes() -> ProcessRun:
    """Run the processes that this program was started for, by ``gridloom simulate -d`` or ``gridloom deploy``.

    Reads the configuration first, as `read_settings` says, unless that was done before. Nothing runs unless the program has
    all functions of the deployment and their parameters fit its arguments.

    Returns
    -------
    ProcessRun
        Virtual time and the trace's hash, for a simulated run.

    Raises
    ------
    UsageError
        If neither started this program.
    InputError
        If the deployment does not fit the platform or the program: with file, line and column.
    ProcessError
        If a process failed. If it did by `sys.exit`, that is what happens here.
    StalledError
        If the processes wait for each other forever; the message says which process waits for what.
    """
    if not _settings_are_read:
        read_settings()
    mains = {name: _main(main) for name, main in _functions.items()}
    seconds, trace_hash = _gridloom.run_processes(mains, _misfit)
    return ProcessRun(seconds, trace_hash)


def _misfit(function: str, arguments: list[str]) -> str | None:
    """Why a process's arguments do not fit its function; None if they do, or if Python cannot know."""
    try:
        signature = inspect.signature(_functions[function])
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(None, *arguments)
    except TypeError as error:
        names = [str(parameter) for parameter in signature.parameters.values()][1:]
        takes = f"takes {', '.join(names)}" if names else "takes no arguments"
        return f"process function '{function}' {takes} behind the process itself; {len(arguments)} given: {error}"
    return None


def _main(function: Callable[..., object]) -> Callable[[_gridloom.RawProcess], None]:
    def main(raw: _gridloom.RawProcess) -> None:
        me = Process(raw)
        function(me, *me.arguments)

    return main
