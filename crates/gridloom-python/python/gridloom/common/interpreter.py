"""Options of this interpreter, for others that run the same program."""

from __future__ import annotations

import sys


def interpreter_options() -> list[str]:
    """Options that the interpreter was given, also by variables of its environment, one word each.

    Returns
    -------
    list of str
        Those that change how code runs: ``-O``, ``-B``, ``-b``, ``-I``, ``-E``, ``-s``, ``-P``, ``-W`` and ``-X``. Others concern the
        terminal and the output of one process; without the module ``site`` (``-S``) no process finds this package.
    """
    flags = sys.flags
    options = ["-O"] * flags.optimize + ["-b"] * flags.bytes_warning + ["-B"] * flags.dont_write_bytecode
    if flags.isolated:
        options.append("-I")
    else:
        own = {"-E": flags.ignore_environment, "-s": flags.no_user_site, "-P": getattr(flags, "safe_path", False)}
        options += [option for option, is_set in own.items() if is_set]
    options += [f"-W{action}" for action in sys.warnoptions]
    given = {"dev": True} if flags.dev_mode else {}
    given.update(getattr(sys, "_xoptions", {}))
    return options + [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in given.items()]
