"""Groups of calls that are mapped together, handles of their results, and graphs that describe groups."""

from .graph import Graph, GraphNode
from .group import Group
from .handle import Handle

__all__ = [
    "Graph",
    "GraphNode",
    "Group",
    "Handle",
]
