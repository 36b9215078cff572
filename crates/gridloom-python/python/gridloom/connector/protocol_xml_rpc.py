"""XML-RPC servers: the connector `xml-rpc`.

Source: the specification of XML-RPC (xmlrpc.com/spec), and the methods for introspection that many servers have (system.listMethods,
system.methodSignature). Requests and answers are encoded by Python's `xmlrpc.client`.

The protocol describes neither the elements of arrays nor their sizes, so the user describes such methods by ``--signature``.
"""

from __future__ import annotations

import re
import reprlib
import xml.sax.saxutils
import xmlrpc.client
from collections.abc import Callable, Sequence
from typing import Any
from xml.parsers.expat import ExpatError

import numpy as np

from ..errors import InputError
from .http_endpoint import HttpEndpoint
from .model import (
    ANSWER_BYTES_MAX,
    BYTES,
    TEXT,
    Model,
    ModelFailed,
    ModelGone,
    ModelNotOffered,
    ModelRefused,
    Tensor,
    Value,
    WrongAnswer,
    array_of,
)

# Types of single values in system.methodSignature, and the types of the grid.
_TYPES = {"int": "int32", "i4": "int32", "i8": "int64", "boolean": "bool", "double": "float64", "string": TEXT, "base64": BYTES}
_INT_BITS = 32
_LONG = "i8"
_SYSTEM = "system."
# The fault of Python's server for an unknown method: the class of an exception and its message, as for exceptions of functions.
_NO_METHOD = re.compile(r"""<class '[^']*'>:method "(?P<method>.*)" is not supported""", re.DOTALL)
_NO_METHOD_CODES = frozenset({-32601})
_NO_NONE = "cannot marshal None unless allow_none is enabled"
# Characters that XML 1.0 cannot represent, and the carriage return, which it changes to a line feed.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff]")
_FAULT_CHARACTERS_MAX = 2000
# Maximum length of a value in a message.
_SHOWN_CHARACTERS_MAX = 200
_REPR = reprlib.Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother = 3, _SHOWN_CHARACTERS_MAX, _SHOWN_CHARACTERS_MAX


class XmlRpc:
    """An XML-RPC server. One thread uses it at a time.

    Parameters
    ----------
    endpoint : str
        Its URL; the default path is ``/RPC2``.
    seconds : float
        Time limit of a method, for its whole answer.
    size : int, optional
        Maximum size of an answer, bytes.
    authorities : str, optional
        Certificates in PEM of the authorities that are trusted to certify the server; by default those of the system.
    """

    noun, server = "method", "an XML-RPC server"
    takes_signatures = True

    def __init__(self, endpoint: str, seconds: float, size: int = ANSWER_BYTES_MAX, authorities: str | None = None) -> None:
        # A call must not run twice, so no connection is used again.
        self._http = HttpEndpoint(endpoint, seconds, authorities, "XML-RPC server", "text/xml", keeps_open=False)
        self._endpoint, self._size = endpoint, size
        self._path = self._http.path or "/RPC2"

    def models(self) -> list[tuple[str, str | None]]:
        """Names of the methods, apart from those for introspection."""
        try:
            found = self._ask("system.listMethods", (), None)
        except (ModelGone, ModelFailed) as error:
            raise ModelNotOffered(f"{self._endpoint} does not list its methods, so describe each by --signature: {error}") from None
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise WrongAnswer(f"system.listMethods: expected a list of texts, got {_shown(found)}")
        return [(one, None) for one in found if not one.startswith(_SYSTEM)]

    def function(self, model: str) -> tuple[str, str]:
        """Module and name of the method's function: the parts before and after the last dot; without a dot, the module is ``methods``."""
        module, _, function = model.rpartition(".")
        return module or "methods", function

    def signature(self, model: str) -> Model:
        """The types that system.methodSignature returns: parameters ``p1``, ``p2`` and so on, and ``result``."""
        remedy = f"describe it, for example by --signature '{model}(x: float64[n]) -> y: float64[n]'"
        try:
            found = self._ask("system.methodSignature", (model,), None)
        except (ModelGone, ModelFailed, WrongAnswer) as error:
            raise ModelNotOffered(f"method '{model}': the server does not describe it ({error}); {remedy}") from None
        if isinstance(found, str) or not found:
            raise ModelNotOffered(f"method '{model}': the server does not describe its types ({_shown(found)}); {remedy}")
        if not isinstance(found, list) or not all(isinstance(one, list) and one and all(isinstance(word, str) for word in one) for one in found):
            raise ModelNotOffered(f"method '{model}': system.methodSignature: expected lists of names of types, got {_shown(found)}; {remedy}")
        if len(found) > 1:
            raise ModelNotOffered(f"method '{model}': the server has {len(found)} signatures for it; {remedy}")
        result, *parameters = found[0]
        for word in [*parameters, *([] if result == "nil" else [result])]:
            if word not in _TYPES:
                what = "an array, whose elements XML-RPC does not describe" if word == "array" else f"'{word}', which the grid does not have"
                raise ModelNotOffered(f"method '{model}': a parameter or the result is {what}; {remedy}")
        inputs = tuple(Tensor(f"p{number}", word, _TYPES[word], ()) for number, word in enumerate(parameters, 1))
        outputs = () if result == "nil" else (Tensor("result", result, _TYPES[result], ()),)
        return Model(model, inputs, outputs, has_batch=False)

    def call(self, model: Model, inputs: Sequence[Value]) -> list[Value]:
        """Results of one call."""
        arguments = tuple(_argument(model.name, tensor, value) for tensor, value in zip(model.inputs, inputs, strict=True))
        result = self._ask(model.name, arguments, self._size)
        if not model.outputs:
            if result is not None and result != 0 and result != "":
                raise WrongAnswer(f"method '{model.name}': its description has no result, and it returned {_shown(result)}")
            return []
        results = [result] if len(model.outputs) == 1 else _several(model, result)
        return [_result(model.name, tensor, one) for tensor, one in zip(model.outputs, results, strict=True)]

    def _ask(self, method: str, arguments: tuple[Any, ...], size: int | None) -> Any:
        try:
            body = _encoded(method, arguments)
        except (UnicodeEncodeError, OverflowError, TypeError) as error:
            raise ModelRefused(f"method '{method}': an argument cannot be sent by XML-RPC: {error}") from None
        self._http.begin()
        status, answer, _ = self._http.ask("POST", self._path, [body], {}, size)
        if status != 200:
            kind = ModelGone if status == 404 else ModelFailed
            raise kind(f"method '{method}' of {self._endpoint}: HTTP status {status}: {_beginning(answer)}")
        try:
            values, _ = xmlrpc.client.loads(answer, use_builtin_types=True)
        except xmlrpc.client.Fault as fault:
            raise _failed(method, fault) from None
        except (ExpatError, xmlrpc.client.ResponseError, ArithmeticError, ValueError, TypeError, LookupError) as error:
            # The message of some errors is a list of classes.
            why = str(error) if isinstance(error, (ExpatError, ValueError)) else type(error).__name__
            raise WrongAnswer(f"method '{method}': the answer is not XML-RPC ({_shown(why)}): {_beginning(answer)}") from None
        if len(values) != 1:
            raise WrongAnswer(f"method '{method}': the answer has {len(values)} values")
        return values[0]


class _Long(int):
    """An integer that is sent as ``i8``, which is an extension of XML-RPC."""


class _Marshaller(xmlrpc.client.Marshaller):
    def dump_long_integer(self, value: int, write: Callable[[str], object]) -> None:
        write(f"<value><{_LONG}>{int(value)}</{_LONG}></value>\n")

    dispatch = {**xmlrpc.client.Marshaller.dispatch, _Long: dump_long_integer}  # type: ignore[dict-item]


def _encoded(method: str, arguments: tuple[Any, ...]) -> bytes:
    """The request, including the XML declaration."""
    parameters = _Marshaller().dumps(arguments)
    name = xml.sax.saxutils.escape(method)
    return f"<?xml version='1.0'?>\n<methodCall>\n<methodName>{name}</methodName>\n{parameters}</methodCall>\n".encode()


def _failed(method: str, fault: xmlrpc.client.Fault) -> Exception:
    text = str(fault.faultString)[:_FAULT_CHARACTERS_MAX]
    # Some servers have codes of other types than the integers of the specification.
    code: Any = fault.faultCode
    told = f"method '{method}': fault {_shown(code)}: {text}"
    unknown = _NO_METHOD.fullmatch(text)
    # A method may raise the same exception when it fails to call another method.
    if (type(code) is int and code in _NO_METHOD_CODES) or (unknown is not None and unknown["method"] == method):
        return ModelGone(told)
    if _NO_NONE in text:
        return ModelFailed(f"{told}; it returned None: start its server with allow_none=True, or return a value")
    return ModelFailed(told)


def _argument(method: str, tensor: Tensor, value: Value) -> Any:
    where = f"method '{method}': '{tensor.name}'"
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        if found := _NOT_IN_XML.search(value):
            raise ModelRefused(f"{where} has the character {found[0]!r}, which XML does not have; describe the parameter as bytes, which is base64")
        return value
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ModelRefused(f"{where} has NaN or infinite values, and XML-RPC has no such numbers")
    if tensor.datatype == _LONG:
        return _Long(value.item())
    if value.dtype.kind in "iu" and value.size:
        low, high = int(value.min()), int(value.max())
        if low < -(1 << _INT_BITS - 1) or high >= 1 << _INT_BITS - 1:
            wrong = low if low < -(1 << _INT_BITS - 1) else high
            raise ModelRefused(
                f"{where} has the value {wrong}, and integers of XML-RPC have {_INT_BITS} bits; describe the parameter as float64 or str, "
                "if the server takes that"
            )
    return value.tolist()


def _several(model: Model, result: Any) -> list[Any]:
    """Return the values of several results from an array, or from a struct with their names."""
    names = [one.name for one in model.outputs]
    if isinstance(result, dict):
        if lacking := [name for name in names if name not in result]:
            raise WrongAnswer(f"method '{model.name}': the struct that it returned lacks the member '{lacking[0]}'")
        return [result[name] for name in names]
    if not isinstance(result, list) or len(result) != len(names):
        raise WrongAnswer(f"method '{model.name}': expected an array or struct of {len(names)} results, got {_shown(result)}")
    return result


def _result(method: str, tensor: Tensor, value: Any) -> Value:
    """Check a result against its description, and convert it."""
    where = f"method '{method}': the result '{tensor.name}'"
    if tensor.dtype in (BYTES, TEXT):
        if isinstance(value, (bytes, str)) and isinstance(value, bytes) == (tensor.dtype == BYTES):
            return value
        raise WrongAnswer(f"{where} is described as {tensor.dtype}, and is {_shown(value)}")
    kind = np.dtype(tensor.dtype).kind
    types = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float)}[kind]
    numbers: list[Any] = []

    def check(one: Any, depth: int) -> None:
        if depth:
            if not isinstance(one, list):
                raise WrongAnswer(f"{where} is described as an array of {len(tensor.shape)} dimensions, and has {_shown(one)} in place of an array")
            for inner in one:
                check(inner, depth - 1)
        elif type(one) not in types:
            hint = "; the method returned None" if one is None else ""
            raise WrongAnswer(f"{where} is described as {tensor.dtype}, and has the value {_shown(one)}{hint}")
        else:
            numbers.append(one)

    check(value, len(tensor.shape))
    try:
        array = array_of(value, numbers, tensor.dtype)
    except OverflowError:
        raise WrongAnswer(f"{where} is described as {tensor.dtype}, and has a value that does not fit into it") from None
    except ValueError:
        raise WrongAnswer(f"{where} is an array whose rows differ in length") from None
    # An array without elements has no inner arrays.
    return array if array.ndim == len(tensor.shape) else array.reshape((0,) * len(tensor.shape))


def _shown(value: Any) -> str:
    """The value, shortened. It may be as large as an answer, so it is not converted to text as a whole."""
    if isinstance(value, bytes):
        value = value[:_SHOWN_CHARACTERS_MAX]
    text = value if isinstance(value, str) else _REPR.repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]} ..."


def _beginning(answer: bytes) -> str:
    """The first characters of an answer."""
    # A character of UTF-8 has at most 4 bytes.
    return _shown(answer[: 4 * _SHOWN_CHARACTERS_MAX + 4].decode(errors="replace"))


_NAME = r"[^\W\d]\w*"
_DESCRIPTION = re.compile(r"\s*(?P<name>[^\s()]+)\s*\((?P<inputs>[^()]*)\)\s*->\s*(?P<outputs>.*?)\s*", re.DOTALL)
_PARAMETER = re.compile(rf"\s*(?P<name>{_NAME})\s*:\s*(?P<dtype>\w+)\s*(?:\[(?P<extents>[^\[\]]*)\])?\s*")
_DTYPES = ("bool", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", TEXT, BYTES)


def parse_signature(text: str) -> Model:
    """A method as the user describes it, in the form in which the grid shows signatures.

    Parameters
    ----------
    text : str
        Such as ``add(x: float64[n], y: float64[n]) -> z: float64[n]``. Several results are in parentheses, and ``()`` is none. Types are those of the
        grid.

    Raises
    ------
    InputError
        If the text is not a signature. The message shows the wrong part.

    Examples
    --------
    >>> parse_signature("norm(x: float64[n]) -> y: float64").outputs[0].dtype
    'float64'
    """
    example = "expected, for example, 'add(x: float64[n], y: float64[n]) -> z: float64[n]'"
    found = _DESCRIPTION.fullmatch(text)
    if found is None:
        raise InputError(f"--signature {text}: {example}")

    def tensors(part: str) -> tuple[Tensor, ...]:
        made, waiting = [], []
        for one in re.split(r",(?![^\[]*\])", part) if part.strip() else []:
            # The grid shows parameters of one type together: x, y: float64[n].
            if re.fullmatch(_NAME, one.strip()):
                waiting.append(one.strip())
                continue
            parameter = _PARAMETER.fullmatch(one)
            if parameter is None:
                raise InputError(f"--signature {text}: '{one.strip()}' is not NAME: TYPE or NAME: TYPE[SIZE, ...]; {example}")
            dtype, given = TEXT if parameter["dtype"] == "string" else parameter["dtype"], parameter["extents"]
            if dtype not in _DTYPES:
                raise InputError(f"--signature {text}: the type '{dtype}' is unknown; there are {', '.join(_DTYPES)}")
            extents = tuple(size.strip() for size in given.split(",")) if given is not None else ()
            if extents and (dtype in (TEXT, BYTES) or not all(extents)):
                raise InputError(f"--signature {text}: '{one.strip()}': arrays are of numbers, with a size for each dimension")
            named = [*waiting, parameter["name"]]
            made += [Tensor(name, dtype, dtype, (-1,) * len(extents), extents or None) for name in named]
            waiting = []
        if waiting:
            raise InputError(f"--signature {text}: '{waiting[0]}' is not NAME: TYPE or NAME: TYPE[SIZE, ...]; {example}")
        return tuple(made)

    outputs = found["outputs"]
    outputs = outputs[1:-1] if outputs.startswith("(") and outputs.endswith(")") else outputs
    # After the semicolon, the grid shows the extents, which follow from the rest.
    inputs = found["inputs"].partition(";")[0]
    return Model(found["name"], tensors(inputs), tensors(outputs), has_batch=False)
