"""Functions as workers of engines run them: pickled by value, since gridloom is not installed there."""

from __future__ import annotations

import functools
import json
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _gridloom
from ..errors import TaskError, of_variant
from ..functions.offer import undeclared

_KIND = "gridloom_kind"


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

        def failed(variant: str, why: str, **fields: str) -> RuntimeError:
            error = RuntimeError(f"{name}: {why}")
            setattr(error, marked, (variant, name, why, fields or {"why": why}))
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

        # An engine would end the worker, without a word of the call that did it.
        try:
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
        except SystemExit as error:
            how = f"it called sys.exit({error})"
            raise failed("Crashed", how, how=how) from error
        except KeyboardInterrupt as error:
            raise failed("RemoteError", "it raised KeyboardInterrupt", kind="KeyboardInterrupt", message=str(error)) from error
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
    variant, function, why, fields = getattr(error, _KIND)
    made = of_variant(variant, f"{function} on {server}: {why}", {"function": function, "server": server, **fields})
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


