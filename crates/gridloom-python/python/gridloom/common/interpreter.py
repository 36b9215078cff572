"""Options of this interpreter, to start other interpreters for the same program."""

from __future__ import annotations

import sys


def interpreter_options() -> list[str]:
    """Options of this interpreter, from its command line or environment variables, one word each.

    Returns
    -------
    list of str
        The options that change how code runs: ``-O``, ``-B``, ``-b``, ``-I``, ``-E``, ``-s``, ``-P``, ``-W`` and ``-X``. The others concern
        only the terminal and the output of one process, except ``-S``: without the module ``site``, a process cannot find this package.
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
