"""Reports a long wait in the log."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

# Time after which a wait is reported.
_REPORT_SECONDS = 5.0


@contextlib.contextmanager
def reported_wait(whom: str, limit: float) -> Iterator[None]:
    """Log once that there is still no answer.

    Parameters
    ----------
    whom : str
        Who does not answer.
    limit : float
        Time limit of the wait, in seconds.
    """
    text = f"{whom} has not answered for {_REPORT_SECONDS:g} s; the connection fails after {limit:g} s"
    timer = threading.Timer(_REPORT_SECONDS, logging.getLogger("gridloom.session").warning, [text])
    timer.daemon = True
    if limit > _REPORT_SECONDS:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
