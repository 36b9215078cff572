"""``python -m gridloom``: the program ``gridloom`` of the package, with the same arguments."""

from __future__ import annotations

import os
import sys

from ._sessions import _program


def main() -> str:
    """Become the program.

    Returns
    -------
    str
        Why that cannot be.
    """
    program = _program()
    if program is None:
        return (
            "python -m gridloom: this installation of the package has no program 'gridloom', and there is none on PATH: "
            "install a wheel of the package, or name the program in the environment variable GRIDLOOM_PROGRAM"
        )
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        return f"python -m gridloom: {program} cannot be run: {error.strerror}"


if __name__ == "__main__":
    sys.exit(main())
