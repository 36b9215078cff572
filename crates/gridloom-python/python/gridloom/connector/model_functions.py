"""Typed functions for the models of a model server or the methods of another server, which stays unchanged, and the requests that they make.

`gridloom connector` finds the models once, by `python -m gridloom.connector`, which writes a module for ``gridloom serve``. The module contains each
model's signature. Workers import it and call the server only when a function is called. A method of a server is a model here, too.
"""

from __future__ import annotations

import dataclasses
import json
import keyword
import math
import re
import types
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import _gridloom
from ..errors import InputError
from ..pickling.protocol import SIGNATURE_ATTRIBUTE
from .model import BYTES, TEXT, Model, ModelNotOffered, Tensor, Value, WrongAnswer
from .protocol_grpc import Grpc
from .protocol_v2 import V2
from .protocol_xml_rpc import XmlRpc

Declared: TypeAlias = "tuple[str, str, list[str] | None, str]"

BATCH = "batch"
"""The name of a first dimension of any size: the same for all tensors of a model."""


class Connector(Protocol):
    """A connection to a server. Each protocol is one file, with a class that has these members and raises errors of the module `model`."""

    noun: str
    """The word for what the server offers: model or method."""
    server: str
    """The kind of the server, with an article, such as ``a gRPC server``."""
    takes_signatures: bool
    """Whether the user may describe methods, because the protocol does not describe all of them."""

    def models(self) -> list[tuple[str, str | None]]:
        """Return the names of the models, each with the reason why it cannot be called, or None."""

    def function(self, model: str) -> tuple[str, str]:
        """Module and name of the function of a model that `models` has listed or `signature` has described."""

    def signature(self, model: str) -> Model:
        """Inputs and outputs of the model; `ModelNotOffered` if the grid has no such types."""

    def call(self, model: Model, inputs: Sequence[Value]) -> list[Value]:
        """Results of one call, in the order of `model.outputs`. An input is a row-major array of its dtype, ``bytes`` or ``str``."""


class Constructor(Protocol):
    """Makes a connector."""

    def __call__(self, endpoint: str, seconds: float, size: int = ..., authorities: str | None = None, /) -> Connector:
        """Make a connector for an endpoint, with the time limit and the maximum size of an answer (bytes), and certificates of authorities in PEM."""


PROTOCOLS: Mapping[str, Constructor] = {"v2": V2, "grpc": Grpc, "xml-rpc": XmlRpc}


@dataclasses.dataclass(frozen=True)
class Access:
    """How workers reach the server.

    Parameters
    ----------
    endpoint : str
        Its URL or address.
    seconds : float
        Time limit of an answer.
    size : int
        Maximum size of an answer, bytes.
    authorities : str or None
        Certificates of authorities in PEM.
    """

    endpoint: str
    seconds: float
    size: int
    authorities: str | None


Shapes: TypeAlias = Mapping[str, Sequence[str]]
"""Extents of tensors, by name, in place of the model's own shapes."""


def name_of(name: str) -> str:
    """Turn a name into a name of the grid: characters that an identifier of Python cannot contain become ``_``."""
    made = "".join(one if f"_{one}".isidentifier() else "_" for one in unicodedata.normalize("NFKC", name))
    return f"_{made}" if not made.isidentifier() or keyword.iskeyword(made) else made


def signature_of(model: Model, function: str, shapes: Shapes, about: str = "") -> tuple[_gridloom.RawSignature, int]:
    """The signature of a model's function, and the number of its inputs that are tensors.

    A dimension of any size (-1) is an extent. The first dimension of all tensors is the same extent, `BATCH`, if the model has batches; each other
    has one of its own. Extents of results that do not follow from the inputs are parameters after the tensors, of type int64. A result with the
    name of an input has the suffix ``_out``.
    """
    inputs, free, outputs = _parameters(model, shapes)
    asked: list[Declared] = [(name, "int64", None, "any") for name in free]
    made = _gridloom.build_signature(function, [*inputs, *asked], outputs, None, [], [], about)
    return made, len(inputs)


def _parameters(model: Model, shapes: Shapes) -> tuple[list[Declared], list[str], list[Declared]]:
    """Declared inputs, names of the extents that the caller has to pass, and declared results."""
    inputs_named = {name_of(one.name): one for one in model.inputs}
    outputs_named: dict[str, Tensor] = {}
    # Names in shapes: those of the server, and for a result with the name of an input that of the grid.
    keys = {one.name: one.name for one in model.inputs}
    for one in model.outputs:
        name = name_of(one.name)
        while name in inputs_named:
            name += "_out"
        outputs_named[name] = one
        keys[name if one.name in keys else one.name] = name
    if len(inputs_named) < len(model.inputs) or len(outputs_named) < len(model.outputs):
        raise ModelNotOffered(f"two of {_listed(keys)} have the same name on the grid")
    for key in shapes:
        if key not in keys:
            raise InputError(f"--shape {model.name}/{key}: '{model.name}' has {_listed(keys) or 'no inputs or outputs'}")
    names = {*inputs_named, *outputs_named}
    batch = BATCH if model.has_batch else None
    while batch in names:
        batch = f"{batch}_"
    given = {name: shapes.get(one.name) for name, one in inputs_named.items()}
    given.update({name: shapes.get(key) for key, name in keys.items() if name in outputs_named})
    inputs = [_declared(model, name, one, batch, given[name], names, False) for name, one in inputs_named.items()]
    outputs = [_declared(model, name, one, batch, given[name], names, True) for name, one in outputs_named.items()]
    # Extents, and numbers that expressions may use.
    bound = {extent for _, _, extents, _ in inputs for extent in extents or () if extent.isidentifier()} | set(inputs_named)
    free: dict[str, None] = {}
    for _, _, extents, _ in outputs:
        for name in re.findall(r"[^\W\d](?:\w|[^\x00-\x7f])*", " ".join(extents or ())):
            if name not in bound:
                free[name] = None
    return inputs, list(free), outputs


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{one}'" for one in names)


def _declared(model: Model, name: str, tensor: Tensor, batch: str | None, given: Sequence[str] | None, names: set[str], is_result: bool) -> Declared:
    if tensor.dtype in (BYTES, TEXT):
        # The tensor has one element, of any length: a signature cannot describe an array of texts.
        if given is not None:
            raise InputError(f"--shape {model.name}/{tensor.name}={','.join(given)}: it is one value of type {tensor.datatype}, which has no shape")
        if math.prod(abs(size) for size in tensor.shape) != 1:
            raise ModelNotOffered(
                f"tensor '{tensor.name}' is {tensor.datatype}[{_sizes(tensor.shape)}]; a function takes one text, so all its sizes have to be 1 or -1"
            )
        return name, tensor.dtype, None, "any"
    if given is not None:
        if tensor.is_list and not all(given):
            raise InputError(f"--shape {model.name}/{tensor.name}={','.join(given)}: expected at least one size")
        fits = tensor.is_list or (
            len(given) == len(tensor.shape) and all(str(size) == extent or size < 0 for size, extent in zip(tensor.shape, given, strict=True))
        )
        if not fits:
            raise InputError(
                f"--shape {model.name}/{tensor.name}={','.join(given)}: the model says [{_sizes(tensor.shape)}]; "
                "give one size for each dimension, and repeat the sizes that the model fixes"
            )
        if sum(not _is_simple(extent) for extent in given) > 1 and tensor.is_list and is_result:
            raise InputError(
                f"--shape {model.name}/{tensor.name}={','.join(given)}: at most one size of a result that is sent as a list may be an expression; "
                "the others have to be names or numbers"
            )
        return name, tensor.dtype, list(given), "any"
    extents = []
    for axis, size in enumerate(tensor.shape):
        own = batch if axis == 0 and batch is not None else f"{name}_{axis}"
        while own in names:
            own += "_"
        extents.append(tensor.extents[axis] if tensor.extents is not None else own if size < 0 else str(size))
    return name, tensor.dtype, extents or None, "any"


def _is_simple(extent: str) -> bool:
    return extent.isidentifier() or extent.isdecimal()


def _sizes(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))


def functions(module: str, file: str, protocol: str, models: Sequence[dict[str, Any]]) -> dict[str, types.FunctionType]:
    """Functions of a module that `write` has made, by their names there."""
    access = json.loads((Path(file).parent / ENDPOINT).read_text(encoding="utf-8"))
    connector = PROTOCOLS[protocol](access["endpoint"], access["seconds"], access["size"], access["authorities"])
    made = {}
    for number, entry in enumerate(models):
        model = Model.from_entry(entry["model"])
        signature, _ = signature_of(model, entry["function"], entry["shapes"], _about(connector, model))
        body = function_of(connector, model, entry["shapes"])
        body.__module__, body.__name__ = module, f"model_{number}"
        setattr(body, SIGNATURE_ATTRIBUTE, signature)
        made[body.__name__] = body
    return made


def _about(connector: Connector, model: Model) -> str:
    return f"{connector.noun.capitalize()} '{model.name}' of {connector.server}"


def function_of(connector: Connector, model: Model, shapes: Shapes) -> types.FunctionType:
    """The model as a function in this process: it takes the inputs, and then the extents that do not follow from them."""
    declared, free, made = _parameters(model, shapes)
    has_shapes = any(tensor.is_list and len(extents or ()) > 1 for tensor, (_, _, extents, _) in zip(model.outputs, made, strict=True))

    def body(*arguments: Any) -> Any:
        inputs = [_value(one, given) for one, given in zip(model.inputs, arguments[: len(declared)], strict=True)]
        results: list[Any] = [
            one.item() if isinstance(one, np.ndarray) and not tensor.shape else one
            for tensor, one in zip(model.outputs, connector.call(model, inputs), strict=True)
        ]
        if has_shapes:
            sizes = {**_sizes_of(declared, inputs), **dict(zip(free, arguments[len(declared) :], strict=True))}
            results = [
                _reshaped(f"{model.name}/{tensor.name}", one, extents, sizes) if tensor.is_list and extents else one
                for tensor, one, (_, _, extents, _) in zip(model.outputs, results, made, strict=True)
            ]
        return None if not results else results[0] if len(results) == 1 else tuple(results)

    assert isinstance(body, types.FunctionType)
    return body


def _sizes_of(declared: Sequence[Declared], inputs: Sequence[Value]) -> dict[str, int]:
    """Values of the extents and integers among the inputs, by name."""
    sizes: dict[str, int] = {}
    for (name, _, extents, _), given in zip(declared, inputs, strict=True):
        if isinstance(given, np.ndarray):
            sizes.update(zip(extents or (), given.shape, strict=True))
            if given.ndim == 0 and given.dtype.kind in "iu":
                sizes[name] = int(given)
    return sizes


def _reshaped(name: str, values: npt.NDArray[Any], extents: Sequence[str], sizes: Mapping[str, int]) -> npt.NDArray[Any]:
    """Return the values of a list in the shape of ``--shape``. One extent may be an expression: its value follows from the others."""
    shape = [int(sizes[one]) if one.isidentifier() else int(one) if one.isdecimal() else -1 for one in extents]
    if -1 in shape:
        known = math.prod(size for size in shape if size >= 0)
        shape[shape.index(-1)] = values.size // known if known else 0
    if math.prod(shape) != values.size:
        raise WrongAnswer(f"'{name}' has {values.size} numbers, which do not form an array of the shape {shape} ({', '.join(extents)})")
    return values.reshape(shape)


def _value(tensor: Tensor, given: Any) -> Value:
    if tensor.dtype in (BYTES, TEXT):
        return bytes(given) if tensor.dtype == BYTES else str(given)
    array: npt.NDArray[Any] = np.asarray(given, dtype=tensor.dtype, order="C")
    return array


ENDPOINT = "endpoint.json"
"""The file beside the module with everything that differs from host to host, so that the modules of equal servers are equal."""

_MODULE = '''"""Models or methods of a server, as 'gridloom connector' found them."""

from gridloom.connector.model_functions import functions

globals().update(functions(__name__, __file__, {protocol!r}, {models!r}))
'''


def write(folder: Path, protocol: str, access: Access, models: Sequence[tuple[Model, str, Shapes]]) -> None:
    """Write ``models.py``, which offers these models by the names of their functions, and the files that it reads."""
    entries = [
        {"model": dataclasses.asdict(model), "function": function, "shapes": {name: list(sizes) for name, sizes in shapes.items()}}
        for model, function, shapes in models
    ]
    (folder / ENDPOINT).write_text(json.dumps(dataclasses.asdict(access)), encoding="utf-8")
    (folder / "models.py").write_text(_MODULE.format(protocol=protocol, models=entries), encoding="utf-8")
