"""Random generators in pickles: each copy draws the same numbers.

The generators that modules use for their own functions are sent by name: `random.random` and ``numpy.random.rand`` draw from the generator of
the process where they run, also as global variables of a function. Others are copied with their state. The second copy of the same state of
a generator is reported.
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

# A program sends few.
_SENT_MAX = 256
_PACKAGE = str(Path(__file__).parents[1])


@dataclasses.dataclass
class _Sent:
    """A generator that was sent, the digest of its state then, and whether the program was warned of it."""

    generator: Any
    state: bytes = b""
    is_reported: bool = False


# By the address, which is valid since the generator is kept.
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
    """Whether a pickle of the value contains the state of a random generator, and not only by a part."""
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)
    numpy = sys.modules.get("numpy.random")
    return numpy is not None and isinstance(value, numpy.BitGenerator)


def note_sent(generators: list[Any], several: bool) -> None:
    """Note generators of one pickle; `several` calls get it. Warn, once for each generator, if another call gets the same numbers."""
    if new := [one for one in generators if _is_new_copy(one, several)]:
        warnings.warn(
            f"a random generator ({type(new[0]).__qualname__}) is sent to several calls, and each of them draws the same numbers from its "
            "copy: give each call a generator of its own, as by Generator.spawn or SeedSequence.spawn of NumPy, or a seed",
            RandomStateWarning,
            stacklevel=_level_of_program(),
        )


def _is_new_copy(generator: Any, several: bool) -> bool:
    """Whether the generator has drawn no numbers since it was sent before, or goes to `several` calls, and was not reported before."""
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
    """Level of the program's frame above those of this package, for `warnings.warn` in the caller."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level
