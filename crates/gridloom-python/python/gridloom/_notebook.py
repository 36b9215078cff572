"""What is shown in a notebook, and shown anew in the same place."""

from __future__ import annotations

import sys
import uuid


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
