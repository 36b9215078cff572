"""Runs a program of mpi4py: ``python -m gridloom.mpi -n 8 program.py``. ``gridloom mpirun`` starts this command once for each element.

Without ``gridloom mpirun``, it runs all ranks on one element. ``gridloom simulate`` and ``gridloom testbed run`` start it with a deployment file
of ``gridloom chares deployment``.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys


def main() -> int:
    """Run the program that the command line names, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m gridloom.mpi", description="Run a program of mpi4py on ranks that are chares.")
    parser.add_argument("-n", type=int, default=1, metavar="RANKS", help="number of ranks")
    parser.add_argument("--placement", default="blocks", choices=["blocks", "round-robin", "by-site"], help="of ranks on elements")
    parser.add_argument("--list-modules", action="store_true", help="say at the end which modules the ranks of an element share")
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.n < 1:
        parser.error(f"-n {options.n}: at least one rank")
    if not os.path.isfile(options.program):
        parser.error(f"{options.program}: there is no such file")
    if importlib.util.find_spec("greenlet") is None:
        parser.error("ranks need the package greenlet: pip install greenlet")
    from .launch import launch

    return launch(options.program, options.arguments, options.n, options.placement, options.list_modules)


if __name__ == "__main__":
    sys.exit(main())
