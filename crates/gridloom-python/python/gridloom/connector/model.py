"""Models of model servers, methods of other servers, their inputs and outputs, and errors, for all protocols."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ServerFault

BYTES = "bytes"
"""Stands for the dtype of a tensor that is one text, or other bytes."""
TEXT = "str"
"""Stands for the dtype of a tensor that is one text."""
ANSWER_BYTES_MAX = 1 << 30
"""Default limit of an answer with results, bytes. Answers must fit into the worker's memory."""

Value: TypeAlias = "npt.NDArray[Any] | bytes | str"


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One input or output of a model.

    Parameters
    ----------
    name : str
        Name on the model server.
    datatype : str
        Name of its type in the protocol.
    dtype : str
        The same type as the NumPy type of one element, or `BYTES` or `TEXT`.
    shape : tuple of int
        Sizes; -1 is any size.
    extents : tuple of str, optional
        The sizes as expressions, if the tensor is described by expressions.
    is_list : bool, optional
        Whether the protocol sends the elements as a list without a shape. ``--shape`` may give such a tensor any number of dimensions.
    """

    name: str
    datatype: str
    dtype: str
    shape: tuple[int, ...]
    extents: tuple[str, ...] | None = None
    is_list: bool = False


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of a model server, or a method of another server.

    Parameters
    ----------
    name : str
        Name on the server.
    inputs, outputs : tuple of Tensor
        Arguments and results.
    has_batch : bool, optional
        Whether a first dimension of any size is the same for all tensors.
    details : mapping, optional
        Further parts of its description that the protocol needs for calls: values of JSON.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    has_batch: bool = True
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @staticmethod
    def from_entry(entry: dict[str, Any]) -> Model:
        """Create a model from the result of ``dataclasses.asdict``."""
        inputs, outputs = (tuple(Tensor(**one) for one in entry[key]) for key in ("inputs", "outputs"))
        return Model(**{**entry, "inputs": inputs, "outputs": outputs})


def array_of(values: Any, numbers: Sequence[Any], dtype: str) -> npt.NDArray[Any]:
    """Return the array of `values`, a number or lists of numbers. `numbers` are all these numbers: ``bool``, ``int`` or ``float``.

    Raises
    ------
    OverflowError
        If an integer, or a finite number, does not fit into the dtype. NumPy 1 would wrap integers.
    ValueError
        If lists differ in length.
    """
    wanted = np.dtype(dtype)
    if wanted.kind in "iu" and numbers:
        limits = np.iinfo(wanted)
        if min(numbers) < limits.min or max(numbers) > limits.max:
            raise OverflowError(f"{dtype} has values from {limits.min} to {limits.max}")
    with np.errstate(over="ignore"):
        array: npt.NDArray[Any] = np.array(values, dtype=wanted)
    if wanted.kind == "f":
        finite = np.count_nonzero(np.isfinite(array))
        if finite < array.size and finite < np.count_nonzero(np.isfinite(np.array(numbers, dtype=np.float64))):
            raise OverflowError(f"{dtype} has finite values up to {np.finfo(wanted).max}")
    return array


class ConnectorError(Exception):
    """Base of the errors of a connector's functions. The caller gets a `RemoteError` with the class's name as its ``kind``."""

    # The message is enough; the traceback would be that of the connector.
    has_traceback = False


class EndpointLost(ConnectorError, ServerFault):
    """The model server cannot be reached, or does not answer in time."""


class ModelGone(ConnectorError, ServerFault):
    """The model server does not have the model any more, or never had it."""


class ModelNotReady(ConnectorError, ServerFault):
    """The model server has the model, and cannot run it now."""


class ModelNotOffered(ConnectorError):
    """The model cannot be offered as a function. The message gives the reason."""


class ModelRefused(ConnectorError):
    """The model server rejected the arguments. The message is its own."""


class ModelFailed(ConnectorError):
    """The model server failed. The message is its own."""


class WrongAnswer(ConnectorError):
    """The answer of the model server does not follow its protocol or the model's description."""
