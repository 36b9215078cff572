"""Runs all ranks of a program that are on this element."""

from __future__ import annotations

import io
import os
import sys

from .. import chares
from ..errors import ProcessError
from .comm import own_communicators
from .private import Finder, Modules
from .rank import Program, Rank


def launch(path: str, arguments: list[str], size: int, placement: str, list_modules: bool) -> int:
    """Run the program on `size` ranks.

    Returns
    -------
    int
        The largest exit status of a rank.
    """
    folder = os.path.dirname(os.path.abspath(path))
    sys.argv = [path, *arguments]
    # Replaces the folder of this package.
    sys.path[0] = folder
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "standin"))
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    finder = Finder(folder)
    finder.install()
    before = set(sys.modules)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)

    def run(modules: Modules) -> int:
        try:
            modules.run(code)
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                return end.code or 0
            print(end.code, file=sys.stderr)
            return 1
        return 0

    program = Program(run, lambda: Modules(path), own_communicators, size)

    def arrays(job: chares.Job) -> None:
        job.array(Rank, size, (program,), placement=placement, movable=False).begin()

    main = sys.modules["__main__"]
    try:
        ended = chares.run(arrays)
    except ProcessError as error:
        waiting = [f"rank {rank.number} waits in {rank.waits_for}" for rank in program.ranks.values() if rank.waits_for is not None]
        over = [str(rank.number) for rank in program.ranks.values() if rank.result is not None]
        shown = "".join(f"\n  {line}" for line in waiting[:_LISTED_MAX])
        if waiting:
            shown += f"\n  {len(waiting)} ranks wait on this element; {len(over)} have ended"
        print(f"gridloom mpirun: {error}{shown}", file=sys.stderr)
        return 1
    finally:
        sys.modules["__main__"] = main
    if list_modules and ended.is_first:
        _print_modules(program, before)
    return int(ended.value)


#: Largest number of waiting ranks that an error shows.
_LISTED_MAX = 16


def _print_modules(program: Program, before: set[str]) -> None:
    private = {name for rank in program.ranks.values() for name in rank.modules.names()}
    loaded = {name.partition(".")[0] for name in set(sys.modules) - before - private}
    shared = sorted(name for name in loaded if name not in sys.stdlib_module_names and name != "gridloom")
    print(f"modules of which each rank has its own copy: {', '.join(sorted(private))}", file=sys.stderr)
    print(f"modules that the ranks of an element share, besides the standard library: {', '.join(shared)}", file=sys.stderr)
