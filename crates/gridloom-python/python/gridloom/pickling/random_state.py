"""Random generators in pickles: each copy draws the same numbers.

Generators that belong to a module are sent by name: `random.random` and ``numpy.random.rand`` use the generator of the process in which they
run, even if they are global variables of a function. Other generators are copied with their state. The second copy of the same state is
reported.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import pickle
import random
import sys
import threading
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

from ..errors import RandomStateWarning

# Maximum number of remembered generators; most programs send few.
_SENT_MAX = 256
_PACKAGE = str(Path(__file__).parents[1])


@dataclasses.dataclass
class _Sent:
    """A generator that was sent, the digest of its state at that time, and whether the program was warned."""

    generator: Any
    state: bytes = b""
    is_reported: bool = False


# By address, which stays valid because the generator is kept alive.
_sent: collections.OrderedDict[int, _Sent] = collections.OrderedDict()
_lock = threading.Lock()


def name_in_module(value: Any) -> tuple[Any, str] | None:
    """Module and name of a generator that belongs to a module."""
    for module, name in (("random", "_inst"), ("numpy.random.mtrand", "_rand")):
        found = sys.modules.get(module)
        if found is not None and getattr(found, name, None) is value:
            return found, name
    return None


def is_generator(value: Any) -> bool:
    """Whether the value itself, not one of its parts, has the state of a random generator."""
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)
    numpy = sys.modules.get("numpy.random")
    return numpy is not None and isinstance(value, numpy.BitGenerator)


def note_sent(generators: list[Any], several: bool) -> None:
    """Record the generators of a pickle that one call or `several` calls get. Warn once for each generator whose state is sent to several calls."""
    if new := [one for one in generators if _is_new_copy(one, several)]:
        warnings.warn(
            f"a random generator ({type(new[0]).__qualname__}) is sent to several calls, and each of them draws the same numbers from its "
            "copy: give each call its own seed or generator, for example by SeedSequence.spawn or Generator.spawn of NumPy",
            RandomStateWarning,
            stacklevel=_level_of_program(),
        )


def _is_new_copy(generator: Any, several: bool) -> bool:
    """Whether this state was sent before or is now sent to `several` calls, and the generator was not reported yet."""
    state = generator.getstate() if isinstance(generator, random.Random) else generator.state
    digest = hashlib.blake2b(pickle.dumps(state), digest_size=16).digest()
    with _lock:
        sent = _sent.setdefault(id(generator), _Sent(generator))
        is_copy = several or sent.state == digest
        is_new = is_copy and not sent.is_reported
        sent.state, sent.is_reported = digest, sent.is_reported or is_copy
        if len(_sent) > _SENT_MAX:
            _sent.popitem(last=False)
    return is_new


def _level_of_program() -> int:
    """The `stacklevel` with which `warnings.warn` in the caller names the first frame outside this package."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
