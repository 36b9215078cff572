"""``python -m gridloom.worker --fd 0``: runs Python functions for a server. Only a server starts it."""

from __future__ import annotations

import os
import signal
import sys

from .. import _gridloom
from ..calls.worker_slot import mark_worker
from ..display.output import NO_LOG_VARIABLE, ToProgram


def main(arguments: list[str]) -> int:
    """Run calls until the server ends.

    Parameters
    ----------
    arguments : list of str
        ``--fd 0``: the file descriptor of the server's socket.

    Returns
    -------
    int
        Exit status.
    """
    descriptor = int(arguments[arguments.index("--fd") + 1]) if "--fd" in arguments else 0
    # The server handles an interrupt at the terminal and ends its workers. An empty handler is used because programs that functions start
    # would inherit an ignored signal.
    signal.signal(signal.SIGINT, lambda *_: None)
    # Output of functions is for people: those of the program, or of the server.
    os.dup2(2, 1)
    mark_worker()
    # Line-buffered, as at a terminal: a crash loses no printed line. UTF-8 in any locale, because the server expects it.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    sys.stdout, sys.stderr = ToProgram(sys.stdout, False), ToProgram(sys.stderr, True)
    has_log = os.environ.pop(NO_LOG_VARIABLE, None) is None
    try:
        _gridloom.worker_main(descriptor, has_log)
    except OSError as error:
        print(f"gridloom.worker: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
