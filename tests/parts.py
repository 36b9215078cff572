"""Parts of a grid that tests start as real processes."""

import contextlib
import os
import pathlib
import re
import subprocess

import gridloom as gl

PROGRAM = os.environ.get("GRIDLOOM_PROGRAM", str(pathlib.Path(gl.__file__).parent / "bin" / "gridloom"))


@contextlib.contextmanager
def parts(folder):
    """Yields a function that starts a part in that folder and returns its process and the first line that it
    prints. The parts end with the block."""

    def start(*arguments):
        command = [PROGRAM, *arguments, "--json", "--quiet", "--until-stdin-closes"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder)
        started.append(process)
        return process, process.stdout.readline()

    started = []
    yield start
    for process in started:
        process.stdin.close()
        process.wait(timeout=60)


def address_in(said):
    """Returns the address at which a part listens, from the line that it has printed."""
    return re.search(r'"address":\s*"([^"]+)"', said).group(1)
