"""Typed functions for the models of a model server, and the requests that they make. The model server stays as it is.

`gridloom connector` finds the models once, by `python -m gridloom.connector`, which writes a module for ``gridloom serve``. The module has each
model's signature in it. Workers import it and call the model server only when a function is called.
"""

from __future__ import annotations

import dataclasses
import keyword
import math
import re
import types
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import _gridloom
from ..errors import InputError
from ..pickling.protocol import SIGNATURE_ATTRIBUTE
from . import protocol_v2 as _connector_v2
from .model import BYTES, Model, ModelNotOffered, Tensor, Value

Declared: TypeAlias = "tuple[str, str, list[str] | None, str]"

BATCH = "batch"
"""The name of a first dimension of any size: the same for all tensors of a model."""


class Connector(Protocol):
    """A model server. Each protocol is one file, with a class that has these methods and raises errors of `_connected`."""

    def models(self) -> list[tuple[str, str | None]]:
        """Names of the models, and of each why it cannot be called now, if so."""

    def signature(self, model: str) -> Model:
        """Inputs and outputs of the model; `ModelNotOffered` if the grid has no such types."""

    def call(self, model: Model, inputs: Sequence[Value]) -> list[Value]:
        """Results of one call, in the order of `model.outputs`. An input is a row-major array of its dtype, or ``bytes``."""


PROTOCOLS: Mapping[str, Callable[[str, float, int], Connector]] = {"v2": _connector_v2.V2}
"""Constructors of connectors. Arguments: the endpoint, the time limit of an answer in seconds, and its maximum size in bytes."""

Shapes: TypeAlias = Mapping[str, Sequence[str]]
"""Extents of tensors, by name, in place of the model's own shapes."""


def name_of(name: str) -> str:
    """The name as one of the grid: characters that an identifier of Python cannot contain become ``_``."""
    made = "".join(one if f"_{one}".isidentifier() else "_" for one in unicodedata.normalize("NFKC", name))
    return f"_{made}" if not made.isidentifier() or keyword.iskeyword(made) else made


def signature_of(model: Model, module: str, shapes: Shapes) -> tuple[_gridloom.RawSignature, int]:
    """A model's signature on the grid, and how many of its inputs are tensors.

    A dimension of any size (-1) is an extent. The first dimension of all tensors is the same extent, `BATCH`; each other has one of its own.
    Extents of results that do not follow from the inputs are parameters behind the tensors, of type int64.
    """
    for tensor in shapes:
        if all(tensor != one.name for one in [*model.inputs, *model.outputs]):
            raise InputError(f"--shape {model.name}/{tensor}: the model has the tensors {_listed([*model.inputs, *model.outputs])}")
    names = {name_of(one.name) for one in [*model.inputs, *model.outputs]}
    batch = BATCH
    while batch in names:
        batch += "_"
    inputs = [_declared(model, one, batch, shapes.get(one.name)) for one in model.inputs]
    outputs = [_declared(model, one, batch, shapes.get(one.name)) for one in model.outputs]
    bound = {extent for _, _, extents, _ in inputs for extent in extents or () if extent.isidentifier()}
    free: dict[str, None] = {}
    for _, _, extents, _ in outputs:
        for name in re.findall(r"[^\W\d](?:\w|[^\x00-\x7f])*", " ".join(extents or ())):
            if name not in bound:
                free[name] = None
    asked: list[Declared] = [(name, "int64", None, "any") for name in free]
    about = f"Model '{model.name}' of a model server"
    made = _gridloom.build_signature(f"{module}/{name_of(model.name)}", [*inputs, *asked], outputs, None, [], [], about)
    return made, len(inputs)


def _listed(tensors: Sequence[Tensor]) -> str:
    return ", ".join(f"'{one.name}'" for one in tensors)


def _declared(model: Model, tensor: Tensor, batch: str, given: Sequence[str] | None) -> Declared:
    name = name_of(tensor.name)
    if tensor.dtype == BYTES:
        # One element, of any length: an array of them has no place in a signature.
        if given is not None or math.prod(abs(size) for size in tensor.shape) != 1:
            raise ModelNotOffered(
                f"tensor '{tensor.name}' is BYTES[{_sizes(tensor.shape)}]; a function takes one text, so all its sizes have to be 1 or -1"
            )
        return name, "bytes", None, "any"
    if given is not None:
        fits = len(given) == len(tensor.shape) and all(
            str(size) == extent or size < 0 for size, extent in zip(tensor.shape, given, strict=True)
        )
        if not fits:
            raise InputError(
                f"--shape {model.name}/{tensor.name}={','.join(given)}: the model says [{_sizes(tensor.shape)}]; "
                "give one size for each dimension, those that it fixes as they are"
            )
        return name, tensor.dtype, list(given), "any"
    own = [batch if axis == 0 else f"{name}_{axis}" for axis in range(len(tensor.shape))]
    extents = [extent if size < 0 else str(size) for size, extent in zip(tensor.shape, own, strict=True)]
    return name, tensor.dtype, extents or None, "any"


def _sizes(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))


def functions(module: str, file: str, protocol: str, models: Sequence[dict[str, Any]]) -> dict[str, types.FunctionType]:
    """Functions of a module that `write` has made, by their names there."""
    endpoint, seconds, size = (Path(file).parent / ENDPOINT).read_text(encoding="utf-8").split("\n")
    connector = PROTOCOLS[protocol](endpoint, float(seconds), int(size))
    made = {}
    for number, entry in enumerate(models):
        model = Model.from_entry(entry["model"])
        signature, tensors = signature_of(model, entry["module"], entry["shapes"])
        body = _body(connector, model, tensors)
        body.__module__, body.__name__ = module, f"model_{number}"
        setattr(body, SIGNATURE_ATTRIBUTE, signature)
        made[body.__name__] = body
    return made


def _body(connector: Connector, model: Model, tensors: int) -> types.FunctionType:
    def body(*arguments: Any) -> Any:
        inputs = [_value(one, given) for one, given in zip(model.inputs, arguments[:tensors], strict=True)]
        results = [
            one.item() if isinstance(one, np.ndarray) and not tensor.shape else one
            for tensor, one in zip(model.outputs, connector.call(model, inputs), strict=True)
        ]
        return results[0] if len(results) == 1 else tuple(results)

    assert isinstance(body, types.FunctionType)
    return body


def _value(tensor: Tensor, given: Any) -> Value:
    if tensor.dtype == BYTES:
        return bytes(given)
    array: npt.NDArray[Any] = np.asarray(given, dtype=tensor.dtype, order="C")
    return array


ENDPOINT = "endpoint"
"""The file beside the module with what differs from host to host, so that the modules of equal servers are equal."""

_MODULE = '''"""Models of a model server, as 'gridloom connector' found them."""

from gridloom.connector.model_functions import functions

globals().update(functions(__name__, __file__, {protocol!r}, {models!r}))
'''


def write(
    folder: Path, protocol: str, endpoint: str, limits: tuple[float, int], models: Sequence[tuple[Model, Shapes]], module: str
) -> None:
    """Write ``models.py``, which offers these models, and the files that it reads; `limits` are the seconds and bytes of an answer."""
    entries = [
        {"model": dataclasses.asdict(model), "module": module, "shapes": {name: list(sizes) for name, sizes in shapes.items()}}
        for model, shapes in models
    ]
    (folder / ENDPOINT).write_text("\n".join([endpoint, *map(str, limits)]), encoding="utf-8")
    (folder / "models.py").write_text(_MODULE.format(protocol=protocol, models=entries), encoding="utf-8")
