"""What is shown in a notebook, and shown anew in the same place."""

from __future__ import annotations

import sys
import threading
import uuid
import weakref
from typing import Protocol

# How often a display is looked at, seconds.
_PAUSE_SECONDS = 0.25


def is_here() -> bool:
    """Whether this process is the kernel of a notebook, which has one place for each display."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


class Display:
    """A place in a notebook."""

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex
        self._shown: tuple[str, str] | None = None

    def show(self, text: str, markup: str) -> None:
        """Show it there, for notebooks and for what shows no HTML. What is shown already is not sent again."""
        if (text, markup) == self._shown:
            return
        is_new, self._shown = self._shown is None, (text, markup)
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

        bundle = {"text/plain": text, "text/html": markup}
        display(bundle, raw=True, display_id=self._name, update=not is_new)  # type: ignore[no-untyped-call, unused-ignore]


class Live(Protocol):
    """What shows itself while it changes."""

    def _show_now(self) -> tuple[str, bool]:
        """Give its HTML, and whether it may still change. It waits for no call, and raises nothing."""


# What ends the displays of things that change.
_shown: weakref.WeakKeyDictionary[Live, threading.Event] = weakref.WeakKeyDictionary()


def show_live(thing: Live) -> None:
    """Show it in the cell that runs, and anew while it changes; only the last display of a thing does so.

    Raises
    ------
    NotImplementedError
        If it does not change any more, or this is no notebook. IPython then shows it as anything else.
    """
    markup, changes = thing._show_now() if is_here() else ("", False)
    if not changes:
        raise NotImplementedError
    if (former := _shown.pop(thing, None)) is not None:
        former.set()
    display, ended = Display(), threading.Event()
    _shown[thing] = ended
    display.show(repr(thing), markup)
    follow = threading.Thread(target=_follow, args=(weakref.ref(thing), display, ended), name="gridloom-display", daemon=True)
    follow.start()


def _follow(thing: weakref.ref[Live], display: Display, ended: threading.Event) -> None:
    changes = True
    while changes and not ended.wait(_PAUSE_SECONDS) and (one := thing()) is not None:
        markup, changes = one._show_now()
        display.show(repr(one), markup)
        del one
