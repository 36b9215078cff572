"""Communicators whose ranks have neighbours: grids, graphs, and distributed graphs, where each rank defines its part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import collectives
from .buffers import equal, of_datatypes, simple, vector
from .collectives import Exchange, Steps
from .comm import Comm, Intracomm
from .constants import CART, DIST_GRAPH, GRAPH, PROC_NULL, UNDEFINED, UNWEIGHTED, WEIGHTS_EMPTY
from .errors import ERR_ARG, ERR_DIMS, ERR_RANK, ERR_TOPOLOGY, Exception
from .plans import Reader, lower, upper
from .point import dumped
from .rank import current
from .state import State, context_of


class Grid:
    """The topology of a grid; ranks run through the last dimension first."""

    kind = CART

    def __init__(self, dims: Sequence[int], periods: Sequence[bool]) -> None:
        self.dims = list(map(int, dims))
        self.periods = list(map(bool, periods))

    def coordinates(self, rank: int) -> list[int]:
        found = []
        for extent in reversed(self.dims):
            found.append(rank % extent)
            rank //= extent
        return found[::-1]

    def rank(self, coordinates: Sequence[int]) -> int:
        """Return the rank at these coordinates; PROC_NULL outside of the grid."""
        number = 0
        for at, extent, is_periodic in zip(coordinates, self.dims, self.periods, strict=True):
            if not 0 <= at < extent and not is_periodic:
                return PROC_NULL
            number = number * extent + at % extent
        return number

    def neighbours(self, rank: int) -> tuple[list[int], list[int]]:
        """Return the sources and the destinations of a rank."""
        around = [self.shifted(rank, direction, away) for direction in range(len(self.dims)) for away in (-1, 1)]
        return around, around

    def shifted(self, rank: int, direction: int, away: int) -> int:
        at = self.coordinates(rank)
        at[direction] += away
        return self.rank(at)


class Graph:
    """The topology of a graph that all ranks know."""

    kind = GRAPH

    def __init__(self, index: Sequence[int], edges: Sequence[int]) -> None:
        self.index, self.edges = list(index), list(edges)

    def of(self, rank: int) -> list[int]:
        if not 0 <= rank < len(self.index):
            raise Exception(ERR_RANK, f"{rank}: the graph has {len(self.index)} nodes")
        return self.edges[self.index[rank - 1] if rank else 0 : self.index[rank]]

    def neighbours(self, rank: int) -> tuple[list[int], list[int]]:
        return self.of(rank), self.of(rank)


class Part:
    """A rank's part of a graph."""

    kind = DIST_GRAPH

    def __init__(self, sources: list[int], destinations: list[int], weights: tuple[list[int], list[int]] | None) -> None:
        self.sources, self.destinations, self.weights = sources, destinations, weights

    def neighbours(self, rank: int) -> tuple[list[int], list[int]]:
        return self.sources, self.destinations


def _neighbours(on: Exchange) -> tuple[list[int], list[int], bool]:
    topology = on.topology
    if topology is None:
        raise Exception(ERR_TOPOLOGY, "the communicator has no topology")
    sources, destinations = topology.neighbours(on.me)
    return sources, destinations, topology.kind == CART


def _known(blocks: Any, sources: list[int], received: list[Any]) -> None:
    for block, source, item in zip(blocks.each, sources, received, strict=True):
        if source != PROC_NULL:
            block.unpack(item)


def _allgather(reader: Reader) -> Callable[..., Steps]:
    def neighbor_allgather(on: Exchange, sendbuf: Any, recvbuf: Any) -> Steps:
        """Concatenate the buffers of the neighbours."""
        sources, destinations, is_grid = _neighbours(on)
        data = simple(sendbuf, False).pack()
        to = reader(recvbuf, True, len(sources))
        items = [data] * len(destinations)
        _known(to, sources, (yield from collectives.neighbours(on, items, destinations, sources, is_grid)))

    return neighbor_allgather


def _alltoall(reader: Reader) -> Callable[..., Steps]:
    def neighbor_alltoall(on: Exchange, sendbuf: Any, recvbuf: Any) -> Steps:
        """Send a different block to each neighbour."""
        sources, destinations, is_grid = _neighbours(on)
        items = reader(sendbuf, False, len(destinations)).pack()
        to = reader(recvbuf, True, len(sources))
        _known(to, sources, (yield from collectives.neighbours(on, items, destinations, sources, is_grid)))

    return neighbor_alltoall


def _loaded(received: list[Any]) -> list[Any]:
    import pickle

    return [None if item is None else pickle.loads(item) for item in received]


def neighbor_allgather(on: Exchange, sendobj: Any) -> Steps:
    """Gather a list of the neighbours' objects."""
    sources, destinations, is_grid = _neighbours(on)
    items = [dumped(sendobj)] * len(destinations)
    return _loaded((yield from collectives.neighbours(on, items, destinations, sources, is_grid)))


def neighbor_alltoall(on: Exchange, sendobj: Any) -> Steps:
    """Send a different object to each neighbour."""
    sources, destinations, is_grid = _neighbours(on)
    items = [dumped(one) for one in sendobj]
    if len(items) != len(destinations):
        raise ValueError(f"expecting {len(destinations)} items, got {len(items)}")
    return _loaded((yield from collectives.neighbours(on, items, destinations, sources, is_grid)))


class Topocomm(Intracomm):
    """A communicator whose ranks have neighbours."""

    @staticmethod
    def _fits(state: State) -> bool:
        return state.topology is not None

    Neighbor_allgather, Ineighbor_allgather, Neighbor_allgather_init = upper(_allgather(equal))
    Neighbor_allgatherv, Ineighbor_allgatherv, Neighbor_allgatherv_init = upper(_allgather(vector))
    Neighbor_alltoall, Ineighbor_alltoall, Neighbor_alltoall_init = upper(_alltoall(equal))
    Neighbor_alltoallv, Ineighbor_alltoallv, Neighbor_alltoallv_init = upper(_alltoall(vector))
    Neighbor_alltoallw, Ineighbor_alltoallw, Neighbor_alltoallw_init = upper(_alltoall(of_datatypes))
    neighbor_allgather, neighbor_alltoall = lower(neighbor_allgather), lower(neighbor_alltoall)

    def _around(self) -> tuple[list[int], list[int]]:
        found: tuple[list[int], list[int]] = self._state.topology.neighbours(self._state.rank)
        return found

    @property
    def degrees(self) -> tuple[int, int]:
        return self.indegree, self.outdegree

    indegree = property(lambda self: len(self._around()[0]))
    outdegree = property(lambda self: len(self._around()[1]))
    inedges = property(lambda self: self._around()[0])
    outedges = property(lambda self: self._around()[1])
    inoutedges = property(lambda self: self._around())


class Cartcomm(Topocomm):
    """A communicator whose ranks form a grid."""

    @staticmethod
    def _fits(state: State) -> bool:
        return isinstance(state.topology, Grid)

    @property
    def _grid(self) -> Grid:
        grid = self._state.topology
        if not isinstance(grid, Grid):
            raise Exception(ERR_TOPOLOGY, "the communicator has no Cartesian topology")
        return grid

    def Get_dim(self) -> int:
        """Return the number of dimensions."""
        return len(self._grid.dims)

    def Get_topo(self) -> tuple[list[int], list[int], list[int]]:
        """Return the extents, whether each dimension is periodic, and the caller's coordinates."""
        grid = self._grid
        return list(grid.dims), list(map(int, grid.periods)), grid.coordinates(self._state.rank)

    dim, ndim, topo = property(Get_dim), property(Get_dim), property(Get_topo)
    dims = property(lambda self: self.Get_topo()[0])
    periods = property(lambda self: self.Get_topo()[1])
    coords = property(lambda self: self.Get_topo()[2])

    def Get_cart_rank(self, coords: Sequence[int]) -> int:
        """Return the rank at these coordinates."""
        if len(coords) != self.Get_dim():
            raise Exception(ERR_DIMS, f"{len(coords)} coordinates, and the grid has {self.Get_dim()} dimensions")
        rank = self._grid.rank(coords)
        if rank == PROC_NULL:
            raise Exception(ERR_RANK, f"{tuple(coords)} is outside of {tuple(self._grid.dims)}")
        return rank

    def Get_coords(self, rank: int) -> list[int]:
        """Return the coordinates of a rank."""
        if not 0 <= rank < self.Get_size():
            raise Exception(ERR_RANK, f"{rank}: the communicator has {self.Get_size()} ranks")
        return self._grid.coordinates(rank)

    def Shift(self, direction: int, disp: int) -> tuple[int, int]:
        """Return the source and the destination at that distance in a dimension."""
        if not 0 <= direction < self.Get_dim():
            raise Exception(ERR_DIMS, f"dimension {direction}: the grid has {self.Get_dim()}")
        grid, me = self._grid, self._state.rank
        return grid.shifted(me, direction, -disp), grid.shifted(me, direction, disp)

    def Sub(self, remain_dims: Sequence[bool]) -> Any:
        """Create a grid of some of the dimensions, one for each position in the other dimensions."""
        grid, state = self._grid, self._state
        kept = [number for number, remains in enumerate(remain_dims) if remains]
        at = grid.coordinates(state.rank)
        fixed = [(number, one) for number, one in enumerate(at) if number not in kept]
        places = [grid.coordinates(rank) for rank in range(len(state.group))]
        alike = [all(place[number] == one for number, one in fixed) for place in places]
        group = tuple(rank for rank, is_alike in zip(state.group, alike, strict=True) if is_alike)
        made = State(context_of(state.child("sub"), fixed), group, current().number)
        made.topology = Grid([grid.dims[number] for number in kept], [grid.periods[number] for number in kept])
        return Cartcomm.of(made)


class Graphcomm(Topocomm):
    """A communicator whose ranks are the nodes of a graph."""

    @staticmethod
    def _fits(state: State) -> bool:
        return isinstance(state.topology, Graph)

    @property
    def _graph(self) -> Graph:
        graph = self._state.topology
        if not isinstance(graph, Graph):
            raise Exception(ERR_TOPOLOGY, "the communicator has no graph topology")
        return graph

    def Get_dims(self) -> tuple[int, int]:
        """Return the numbers of nodes and edges."""
        return len(self._graph.index), len(self._graph.edges)

    def Get_topo(self) -> tuple[list[int], list[int]]:
        """Return the end index of each node's edges, and the edges."""
        return list(self._graph.index), list(self._graph.edges)

    dims, topo = property(Get_dims), property(Get_topo)
    nnodes = property(lambda self: self.Get_dims()[0])
    nedges = property(lambda self: self.Get_dims()[1])
    index = property(lambda self: self.Get_topo()[0])
    edges = property(lambda self: self.Get_topo()[1])

    def Get_neighbors_count(self, rank: int) -> int:
        """Return the number of a rank's neighbours."""
        return len(self._graph.of(rank))

    def Get_neighbors(self, rank: int) -> list[int]:
        """List a rank's neighbours."""
        return self._graph.of(rank)

    nneighbors = property(lambda self: self.Get_neighbors_count(self.Get_rank()))
    neighbors = property(lambda self: self.Get_neighbors(self.Get_rank()))


class Distgraphcomm(Topocomm):
    """A communicator whose ranks are the nodes of a graph. Each rank knows its part of the graph."""

    @staticmethod
    def _fits(state: State) -> bool:
        return isinstance(state.topology, Part)

    def Get_dist_neighbors_count(self) -> tuple[int, int, bool]:
        """Return the numbers of sources and destinations, and whether they have weights."""
        part = self._state.topology
        return len(part.sources), len(part.destinations), part.weights is not None

    def Get_dist_neighbors(self) -> tuple[list[int], list[int], Any]:
        """List the sources, the destinations and their weights."""
        part = self._state.topology
        return part.sources, part.destinations, part.weights


def _made(comm: Comm, cls: Any, purpose: str, count: int, topology: Any) -> Any:
    """Create a communicator of the first ranks with a topology."""
    state = comm._state
    context = state.child(purpose)
    if count > len(state.group):
        raise Exception(ERR_TOPOLOGY, f"{count} places, and the communicator has {len(state.group)} ranks")
    if state.rank >= count:
        return cls.of(None)
    made = State(context, state.group[:count], current().number)
    made.topology = topology
    return cls.of(made)


def _grid_of(dims: Any, periods: Any) -> Grid:
    dims = [dims] if isinstance(dims, int) else list(dims)
    if periods is None or isinstance(periods, (bool, int)):
        periods = [bool(periods)] * len(dims)
    if len(periods) != len(dims):
        raise ValueError(f"expecting {len(dims)} items, got {len(periods)}")
    return Grid(dims, periods)


def create_cart(comm: Comm, dims: Sequence[int], periods: Any = None, reorder: bool = False) -> Any:
    """Create a grid of the first ranks."""
    grid = _grid_of(dims, periods)
    count = 1
    for extent in grid.dims:
        count *= extent
    return _made(comm, Cartcomm, "cart", count, grid)


def create_graph(comm: Comm, index: Sequence[int], edges: Sequence[int], reorder: bool = False) -> Any:
    """Create a graph of the first ranks from the end index of each node's edges, and the edges."""
    index = _endpoints(index, edges)
    return _made(comm, Graphcomm, "graph", len(index), Graph(index, edges))


def create_dist_graph_adjacent(
    comm: Comm, sources: Any, destinations: Any, sourceweights: Any = None, destweights: Any = None, info: Any = None, reorder: bool = False
) -> Any:
    """Create a graph of the ranks. Each rank passes its neighbours."""
    sources, destinations = list(sources or []), list(destinations or [])
    is_plain = any(weights is None or _is(weights, UNWEIGHTED) for weights in (sourceweights, destweights))
    weights = None if is_plain else (_listed(sourceweights), _listed(destweights))
    return _made(comm, Distgraphcomm, "adjacent", comm.Get_size(), Part(sources, destinations, weights))


def _listed(weights: Any) -> list[int]:
    return [] if _is(weights, WEIGHTS_EMPTY) else list(weights)


def _is(weights: Any, constant: int) -> bool:
    return isinstance(weights, int) and weights == constant


def create_dist_graph(
    comm: Any, sources: Sequence[int], degrees: Any, destinations: Sequence[int], weights: Any = None, info: Any = None, reorder: bool = False
) -> Any:
    """Create a graph of the ranks. Each rank passes some of the edges."""
    degrees = [degrees] * len(sources) if isinstance(degrees, int) else list(degrees)
    is_plain = weights is None or _is(weights, UNWEIGHTED)
    listed = [0] * len(destinations) if is_plain or _is(weights, WEIGHTS_EMPTY) else list(weights)
    froms = [source for source, degree in zip(sources, degrees, strict=True) for _ in range(degree)]
    edges = [edge for part in comm.allgather(list(zip(froms, destinations, listed, strict=True))) for edge in part]
    me = comm.Get_rank()
    into = [(source, weight) for source, destination, weight in edges if destination == me]
    out = [(destination, weight) for source, destination, weight in edges if source == me]
    weighted = ([weight for _, weight in into], [weight for _, weight in out])
    part = Part([source for source, _ in into], [destination for destination, _ in out], None if is_plain else weighted)
    return _made(comm, Distgraphcomm, "dist", comm.Get_size(), part)


def cart_map(comm: Comm, dims: Any, periods: Any = None) -> int:
    """Return the rank's place in a grid."""
    count = 1
    for extent in _grid_of(dims, periods).dims:
        count *= extent
    return comm.Get_rank() if comm.Get_rank() < count else UNDEFINED


def _endpoints(index: Sequence[int], edges: Sequence[int]) -> list[int]:
    """Remove a leading 0, which mpi4py allows."""
    index = list(index)
    return index[1:] if index and index[0] == 0 and index[-1] == len(edges) and len(index) > 1 else index


def graph_map(comm: Comm, index: Sequence[int], edges: Sequence[int]) -> int:
    """Return the rank's place in a graph."""
    return comm.Get_rank() if comm.Get_rank() < len(_endpoints(index, edges)) else UNDEFINED


def Compute_dims(nnodes: int, dims: Any) -> list[int]:
    """Distribute the nodes over the dimensions that are 0, as evenly as their factors allow, largest dimension first."""
    extents: list[int] = [0] * dims if isinstance(dims, int) else list(dims)
    fixed = 1
    for extent in extents:
        fixed *= extent or 1
    if any(extent < 0 for extent in extents) or nnodes % fixed:
        raise Exception(ERR_DIMS if nnodes % fixed else ERR_ARG, f"{nnodes} nodes in {extents}")
    left, free = nnodes // fixed, [at for at, extent in enumerate(extents) if extent == 0]
    parts, factor, factors = [1] * len(free), 2, []
    while left > 1:
        while left % factor == 0:
            factors.append(factor)
            left //= factor
        factor += 1
    for factor in reversed(factors):
        if parts:
            parts[parts.index(min(parts))] *= factor
    for at, part in zip(free, sorted(parts, reverse=True), strict=True):
        extents[at] = part
    return extents


# These methods create communicators of classes that are defined in this module.
Intracomm.Create_cart = create_cart  # type: ignore[attr-defined]
Intracomm.Create_graph = create_graph  # type: ignore[attr-defined]
Intracomm.Create_dist_graph_adjacent = create_dist_graph_adjacent  # type: ignore[attr-defined]
Intracomm.Create_dist_graph = create_dist_graph  # type: ignore[attr-defined]
Intracomm.Cart_map = cart_map  # type: ignore[attr-defined]
Intracomm.Graph_map = graph_map  # type: ignore[attr-defined]
