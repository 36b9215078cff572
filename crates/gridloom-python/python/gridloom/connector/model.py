"""Models of model servers, their tensors, and errors, for all protocols."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import numpy.typing as npt

from ..errors import ServerFault

BYTES = "bytes"
"""In place of a dtype: a tensor of one text or other bytes."""

Value: TypeAlias = "npt.NDArray[Any] | bytes"


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One input or output of a model.

    Parameters
    ----------
    name : str
        Name on the model server.
    datatype : str
        Its type, in the protocol's own word.
    dtype : str
        The same as a NumPy type of a single number, or `BYTES`.
    shape : tuple of int
        Sizes; -1 is any size.
    """

    name: str
    datatype: str
    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Model:
    """A model: its name, inputs and outputs."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @staticmethod
    def from_entry(entry: dict[str, Any]) -> Model:
        """From what ``dataclasses.asdict`` has made of one."""
        inputs, outputs = (tuple(Tensor(**{**one, "shape": tuple(one["shape"])}) for one in entry[key]) for key in ("inputs", "outputs"))
        return Model(entry["name"], inputs, outputs)


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
    """The model cannot be offered as a function: the message names the tensor that is the reason."""


class ModelRefused(ConnectorError):
    """The model server takes the arguments for wrong. The message is its own."""


class ModelFailed(ConnectorError):
    """The model server failed. The message is its own."""


class WrongAnswer(ConnectorError):
    """The answer of the model server does not follow its protocol or the model's description."""
