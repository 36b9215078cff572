"""Support for engines: functions as workers run them, pickled by value, since gridloom is not installed there; models of clusters."""

from __future__ import annotations

import functools
import itertools
import json
import re
import types
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import _gridloom
from ..errors import ConnectWarning, TaskError, of_variant
from ..functions.offer import undeclared
from .protocol import Measured

_KIND = "gridloom_kind"
# The caller of `connect`, seen from `check_versions`.
_PROGRAM = 6
#: Size of a probe of a link, and how often each link is probed: the best probe counts.
PROBE_BYTES = 4 << 20
PROBES = 2


def body_of(pickled: bytes, signature: _gridloom.RawSignature) -> Callable[..., Any]:
    """A declared function as a worker runs it: it takes the shapes of its results, then its arguments, and returns results that fit the signature.

    Parameters
    ----------
    pickled : bytes
        The function, as the engine's workers unpickle it. That happens at the first call, so that a missing module is an error of the call.
    signature : RawSignature
        Signature of the function.
    """
    name = signature.name
    params = json.loads(signature.definition("", ""))["signature"]["params"]
    results = [(one["name"], one["base"], one["is_array"]) for one in params if one["mode"] == "Out"]
    loaded: list[Callable[..., Any]] = []
    marked = _KIND

    # Pickled by value, with all that is inside.
    def run(shapes: list[Any], *args: Any) -> Any:
        import pickle
        import sys

        import numpy as np

        def failed(kind: str, why: str) -> RuntimeError:
            error = RuntimeError(f"{name}: {why}")
            setattr(error, marked, (kind, name, why))
            return error

        def wrong(result: str, expected: str, value: Any) -> RuntimeError:
            got = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else f"{type(value).__name__} {value!r:.80}"
            return failed("WrongResult", f"result '{result}': expected {expected}, got {got}")

        def array(result: str, dtype: Any, shape: Any, value: Any) -> Any:
            expected = f"{dtype}{'' if shape is None else list(shape)}"
            try:
                made = value if isinstance(value, np.ndarray) else np.asarray(value, dtype)
            except (TypeError, ValueError, OverflowError):
                raise wrong(result, expected, value) from None
            fits = made.dtype.newbyteorder("=") == dtype and (shape is None or made.shape == tuple(shape))
            if not fits or isinstance(made, np.ma.MaskedArray):
                raise wrong(result, expected, made)
            return np.asarray(made, dtype)

        def scalar(result: str, dtype: Any, value: Any) -> Any:
            given = np.asarray(value) if isinstance(value, (bool, int, float, complex, np.generic)) else np.asarray(None)
            wider = {"b": "b", "i": "iuf", "u": "iuf", "f": "iuf", "c": "iufc"}[dtype.kind]
            if given.dtype.kind not in wider:
                raise wrong(result, str(dtype), value)
            with np.errstate(all="ignore"):
                made = given.astype(dtype)
            if dtype.kind in "iu" and made != given or np.isinf(made) != np.isinf(given):
                raise wrong(result, str(dtype), value)
            return made.item()

        def fitting(result: str, base: Any, is_array: bool, shape: Any, value: Any) -> Any:
            if base in ("Text", "Bytes"):
                kind = str if base == "Text" else bytes
                if not isinstance(value, kind):
                    raise wrong(result, kind.__name__, value)
                return value
            dtype = np.dtype(base["Number"].lower())
            return array(result, dtype, shape, value) if is_array else scalar(result, dtype, value)

        if not loaded:
            try:
                loaded.append(pickle.loads(pickled))
            except ImportError as error:
                raise failed(
                    "CannotRun",
                    f"it needs the module '{error.name}', which the worker cannot import ({sys.executable}): install it there, or define "
                    "what the function uses in the module of the function",
                ) from error
        given = loaded[0](*args)
        values = (given,) if len(results) == 1 else () if not results and given is None else given
        if not isinstance(values, tuple) or len(values) != len(results):
            raise wrong("return", f"a tuple of {len(results)} results" if results else "None", given)
        made = tuple(fitting(*about, shape, value) for about, shape, value in zip(results, shapes, values))
        return made if len(results) > 1 else made[0] if made else None

    run.__name__ = name
    return run


def conversions_of(signature: _gridloom.RawSignature) -> dict[str, Callable[[Any], Any]]:
    """Conversions by parameter: from an argument that the model accepts to a value of NumPy or Python, which can be pickled and has a known size."""
    params = json.loads(signature.definition("", ""))["signature"]["params"]
    return {one["name"]: _conversion(one["base"], one["is_array"]) for one in params if one["mode"] != "Out" and not one["hidden"]}


def _conversion(base: Any, is_array: bool) -> Callable[[Any], Any]:
    if base == "Text":
        return str.__str__
    if base == "Bytes":
        return bytes
    dtype = np.dtype(base["Number"].lower())

    def converted(value: Any) -> Any:
        if type(value) in (bool, int, float, complex, np.ndarray) or isinstance(value, np.generic):
            return value
        array = np.asarray(value, None if isinstance(value, np.ndarray) else dtype)
        return array if is_array else array.item()

    return converted


def error_of(error: BaseException, server: str) -> TaskError | None:
    """Gridloom's error for one that a function of `body_of` raised on a worker; none for the function's own."""
    if not (isinstance(error, RuntimeError) and hasattr(error, _KIND)):
        return None
    kind, function, why = getattr(error, _KIND)
    made = of_variant(kind, f"{function} on {server}: {why}", {"function": function, "server": server, "why": why})
    return made if isinstance(made, TaskError) else None


@functools.cache
def part_of(number: int) -> Callable[[Any], Any]:
    """Takes one of several results."""

    def part(results: Any) -> Any:
        return results[number]

    return part


def by_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as pickles hold it with its code."""
    assert isinstance(function, types.FunctionType)
    return undeclared(function)


def operations_per_second() -> float:
    """The speed of a processor, by products of matrices."""
    import time

    a = np.ones((256, 256))
    best = 0.0
    for _ in range(5):
        begun = time.perf_counter()
        a @ a
        best = max(best, 2 * 256**3 / max(time.perf_counter() - begun, 1e-9))
    return best


def platform(measured: Measured) -> str:
    """The cluster in TOML: a card for each host, as wide as its widest link, and a link for each pair."""
    names = ["client", *sorted(measured.slots)]
    links = {("client", name): wide for name, wide in measured.client_bytes_per_s.items()} | measured.direct_bytes_per_s
    lines = []
    for name in names:
        role = "client,agent" if name == "client" else "server"
        wide = max(wide for pair, wide in links.items() if name in pair)
        slots, speed = measured.slots.get(name, 1), measured.speed.get(name, 1e9)
        properties = f'{{ role = "{role}", slots = {slots}, memory = "1EiB" }}'
        lines.append(f'[[host]]\nname = "{name}"\nspeed = {speed}\ncores = {slots}\nproperties = {properties}')
        latency = measured.latency_seconds / 2
        lines.append(f'[[link]]\nname = "card-{name}"\nbandwidth = {wide}\nlatency = {latency}\nsharing = "splitduplex"')
    for one, other in itertools.combinations(names, 2):
        lines.append(f'[[link]]\nname = "{one}-{other}"\nbandwidth = {links[one, other]}\nsharing = "splitduplex"')
        lines.append(f'[[route]]\nfrom = "{one}"\nto = "{other}"\nlinks = ["card-{one}:up", "{one}-{other}:up", "card-{other}:down"]')
    return "\n".join(lines) + "\n"


def check_versions(engine: str, tried: str, found: Mapping[str, str]) -> None:
    """Warn of an engine whose release was not tried, or is not the same everywhere.

    Parameters
    ----------
    engine : str
        Its name, for messages.
    tried : str
        The release that is known to work.
    found : mapping of str to str
        The version at each place; first that of the program.
    """
    here, ours = next(iter(found.items()))
    if others := {place: version for place, version in found.items() if version != ours}:
        place, version = next(iter(others.items()))
        more = f" (as at {len(others) - 1} more places)" if len(others) > 1 else ""
        why = f"{place} has {engine} {version}{more}, and {here} {ours}: calls may fail; install one version everywhere"
        warnings.warn(why, ConnectWarning, stacklevel=_PROGRAM)
    untried = [(place, version) for place, version in found.items() if _release(version) != _release(tried)]
    for place, version in untried[:1]:
        why = f"{place} has {engine} {version}, and this version of Gridloom was tried with {tried}: if calls fail, install that one"
        warnings.warn(why, ConnectWarning, stacklevel=_PROGRAM)


def _release(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


def worker_name(number: int, given: str, taken: set[str]) -> str:
    """The name of a worker in the model: its own name, if that is a valid name of a host."""
    fits = given.replace("-", "").isalnum() and given.isascii() and not given.isdigit() and given not in (*taken, "client")
    name = given if fits else f"worker-{number}"
    taken.add(name)
    return name
