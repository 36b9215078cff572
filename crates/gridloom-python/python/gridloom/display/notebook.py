"""Displays in a notebook that are updated in place."""

from __future__ import annotations

import sys
import threading
import uuid
import weakref
from typing import Protocol

# Time between two updates, seconds.
_PAUSE_SECONDS = 0.25


def is_here() -> bool:
    """Whether this process is the kernel of a notebook, which has one place for each display."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


class Display:
    """An output of a cell that can be updated."""

    def __init__(self) -> None:
        self._name = uuid.uuid4().hex
        self._shown: tuple[str, str] | None = None

    def show(self, text: str, markup: str) -> None:
        """Show text or, in notebooks, HTML. Nothing is sent if it is shown already."""
        if (text, markup) == self._shown:
            return
        is_new, self._shown = self._shown is None, (text, markup)
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

        bundle = {"text/plain": text, "text/html": markup}
        display(bundle, raw=True, display_id=self._name, update=not is_new)  # type: ignore[no-untyped-call, unused-ignore]


class Live(Protocol):
    """An object whose display is updated while it changes."""

    def _show_now(self) -> tuple[str, bool]:
        """Return the HTML, and whether it may still change. It must not wait for a call, nor raise."""


# Events that end the updates of displayed objects.
_shown: weakref.WeakKeyDictionary[Live, threading.Event] = weakref.WeakKeyDictionary()


def show_live(thing: Live) -> None:
    """Show an object in the running cell, and update the display while it changes; only the last display of an object is updated.

    Raises
    ------
    NotImplementedError
        If it does not change any more, or this process is not the kernel of a notebook. IPython then shows it like any other object.
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
