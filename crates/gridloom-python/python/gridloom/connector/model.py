"""What every protocol of model servers speaks of: models, their tensors, and what goes wrong."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import numpy.typing as npt

BYTES = "bytes"
"""In place of a dtype: a tensor of one text or other bytes."""

Value: TypeAlias = "npt.NDArray[Any] | bytes"


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One input or output of a model.

    Parameters
    ----------
    name : str
        As the model server has it.
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
    """A model's name, what it takes, and what it gives."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @staticmethod
    def from_entry(entry: dict[str, Any]) -> Model:
        """From what ``dataclasses.asdict`` has made of one."""
        inputs, outputs = (tuple(Tensor(**{**one, "shape": tuple(one["shape"])}) for one in entry[key]) for key in ("inputs", "outputs"))
        return Model(entry["name"], inputs, outputs)


class ConnectorError(Exception):
    """What a connector's functions raise. At the caller it is a `RemoteError` with the class's name as its ``kind``."""

    # The message tells all; the traceback would be that of the connector.
    has_traceback = False


class EndpointLost(ConnectorError):
    """The model server cannot be reached, or does not answer in time."""


class ModelGone(ConnectorError):
    """The model server does not have the model any more, or never had it."""


class ModelNotReady(ConnectorError):
    """The model server has the model, and cannot run it now."""


class ModelNotOffered(ConnectorError):
    """No function can stand for the model: the message says which tensor is the reason."""


class ModelRefused(ConnectorError):
    """The model server takes the arguments for wrong. The message is its own."""


class ModelFailed(ConnectorError):
    """The model server failed. The message is its own."""


class WrongAnswer(ConnectorError):
    """What the model server answers is not what its protocol, or the model's description, says."""
