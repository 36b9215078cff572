"""A cluster of another system in the place of a grid's servers, as sessions see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ..calls.function import Function
from ..calls.session_state import SessionState
from ..errors import UsageError
from ..groups.group import Group
from ..plans.heuristic import Heuristic
from ..plans.plan import Plan
from ..run.retry import RetryOn


class Cluster(Protocol):
    """Runs groups of functions of the program on a cluster of Dask or Ray."""

    @property
    def session(self) -> SessionState:
        """State of the session."""

    def function(self, name: str | Callable[..., Any], *, retries: int, retry_on: RetryOn | None) -> Function:
        """Find a function that was named when the session began."""

    def group(self, heuristic: str | Plan | Heuristic, map_timeout: float | None) -> Group:
        """Make a group of calls."""

    def close(self) -> None:
        """End the connection to the cluster."""


class NotOnCluster:
    """In the place of a part of `Grid` that a cluster does not have: each use of it is an error."""

    def error(self, method: str) -> UsageError:
        """Make the error of a method of `Grid`."""
        return UsageError(
            f"Grid.{method} is not there on an engine, which runs groups of declared functions: use a grid of gridloom servers for it"
        )

    def __getattr__(self, name: str) -> Any:
        raise self.error("run" if name == "runner" else name)
