"""Communicators: how they are created, and their collective calls."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any, NoReturn

from . import collectives, plans
from .collectives import Exchange, Task
from .constants import (
    APPNUM,
    COMM_TYPE_SHARED,
    CONGRUENT,
    HOST,
    IDENT,
    IO,
    KEYVAL_INVALID,
    LASTUSEDCODE,
    PROC_NULL,
    SIMILAR,
    TAG_MAX,
    TAG_UB,
    UNDEFINED,
    UNEQUAL,
    UNIVERSE_SIZE,
    WTIME_IS_GLOBAL,
)  # fmt: skip
from .errors import ERR_ARG, ERR_COMM, ERR_KEYVAL, ERR_LASTCODE, ERR_TYPE, Exception, unsupported
from .group import Errhandler, Group, Info
from .plans import lower, upper
from .point import PointToPoint
from .rank import current
from .request import Request
from .state import State, context_of

ERRORS_RETURN = Errhandler.named("ERRORS_RETURN")
_keyvals = itertools.count(100)
_functions: dict[int, tuple[Any, Any]] = {}


class Comm(PointToPoint):
    """A communicator.

    Parameters
    ----------
    comm : Comm, optional
        Creates another handle of this communicator; COMM_NULL if omitted.
    """

    def __init__(self, comm: Comm | None = None) -> None:
        if comm is not None and not isinstance(comm, Comm):
            raise TypeError(f"expected a communicator, got {type(comm).__name__}")
        self._own = None if comm is None else comm._found()
        if self._own is not None and not self._fits(self._own):
            raise TypeError(f"the communicator is no {type(self).__name__}")

    @staticmethod
    def _fits(state: State) -> bool:
        """Whether the class represents communicators of this state."""
        return True

    @classmethod
    def of(cls, state: State | None) -> Any:
        """Create the communicator with this state."""
        made = cls.__new__(cls)
        Comm.__init__(made)
        made._own = state
        return made

    @classmethod
    def predefined(cls, name: str) -> Any:
        """Create a predefined communicator of the calling rank."""
        made = cls.of(None)
        made._predefined = name
        return made

    def _alike(self, context: int, group: tuple[int, ...]) -> State | None:
        me = current().number
        return State(context, group, me) if me in group else None

    # Properties.

    def Get_size(self) -> int:
        """Return the number of ranks."""
        return len(self._state.group)

    def Get_rank(self) -> int:
        """Return the rank of the caller."""
        return self._state.rank

    size, rank = property(Get_size), property(Get_rank)

    def Get_group(self) -> Group:
        """Return the group of its ranks."""
        return Group.of(self._state.group)

    group = property(Get_group)

    def Is_inter(self) -> bool:
        """Whether it is an inter-communicator."""
        return self._state.remote is not None

    def Is_intra(self) -> bool:
        """Whether it is an intra-communicator."""
        return self._state.remote is None

    is_inter, is_intra = property(Is_inter), property(Is_intra)

    def Get_topology(self) -> int:
        """Return the kind of its topology, or UNDEFINED."""
        topology = self._state.topology
        return UNDEFINED if topology is None else int(topology.kind)

    topology = property(Get_topology)
    is_topo = property(lambda self: self.Get_topology() != UNDEFINED)

    def Compare(self, comm: Comm) -> int:
        """Compare two communicators and their groups."""
        mine, its = self._state, comm._state
        if mine.context == its.context:
            return IDENT
        if (mine.remote is None) != (its.remote is None):
            return UNEQUAL
        if (mine.group, mine.remote) == (its.group, its.remote):
            return CONGRUENT
        same = set(mine.group) == set(its.group) and set(mine.remote or ()) == set(its.remote or ())
        return SIMILAR if same else UNEQUAL

    # Creation of other communicators.

    def _copied(self) -> State:
        state = self._state
        copy = State(state.child("dup"), state.group, current().number, state.remote)
        copy.topology, copy.info, copy.errhandler = state.topology, dict(state.info), state.errhandler
        for keyval, value in state.attributes.items():
            copy_function = _functions.get(keyval, (None, None))[0]
            if copy_function is True:
                copy.attributes[keyval] = value
            elif callable(copy_function):
                new = copy_function(self, keyval, value)
                if new is not NotImplemented:
                    copy.attributes[keyval] = new
        return copy

    def Dup(self, info: Info | None = None) -> Any:
        """Create a copy with separate messages."""
        copy = type(self).of(self._copied())
        if info is not None:
            copy.Set_info(info)
        copy.Barrier()
        return copy

    def Dup_with_info(self, info: Info) -> Any:
        """Create a copy with other hints."""
        return self.Dup(info)

    def Idup(self, info: Info | None = None) -> tuple[Any, Request]:
        """Create a copy with separate messages; return a request."""
        copy = type(self).of(self._copied())
        if info is not None:
            copy.Set_info(info)
        return copy, copy.Ibarrier()

    Idup_with_info = Idup
    Clone = Dup

    def Split(self, color: int = 0, key: int = 0) -> Any:
        """Create a communicator for each color, with ranks ordered by key and then by their rank here."""
        if color < 0 and color != UNDEFINED:
            raise Exception(ERR_ARG, f"color {color}: at least 0, or UNDEFINED")
        state = self._state
        context = state.child("split")
        me = current().number
        own = [each for each in self._gathered((color, key, state.rank, me)) if each[0] == color]
        group = tuple(number for _, _, _, number in sorted(own, key=lambda each: each[1:3]))
        if state.remote is None:
            return Intracomm.of(None if color == UNDEFINED else State(context_of(context, color), group, me))
        others = [each for each in lower(plans.allgather_objects)(self, (color, key, state.rank, me)) if each[0] == color]
        remote = tuple(number for _, _, _, number in sorted(others, key=lambda each: each[1:3]))
        is_null = color == UNDEFINED or not remote
        return Intercomm.of(None if is_null else State(context_of(context, color), group, me, remote))

    def _gathered(self, item: Any) -> list[Any]:
        """Gather the items of all ranks of the own group."""
        on = Exchange(self._state)
        found: list[Any] = Request.of(Task("split", collectives.allgather(on.local, item))).wait()
        return found

    def Split_type(self, split_type: int, key: int = 0, info: Any = None) -> Any:
        """Create a communicator for each host. Here, a host is a processing element."""
        if split_type not in (COMM_TYPE_SHARED, UNDEFINED):
            raise unsupported(f"MPI.Comm.Split_type of type {split_type}", "there is COMM_TYPE_SHARED")
        return self.Split(UNDEFINED if split_type == UNDEFINED else current().element, key)

    def Create(self, group: Group) -> Any:
        """Create a communicator of some of the ranks; all ranks call this."""
        state = self._state
        context = state.child("create")
        if state.remote is None:
            return Intracomm.of(self._alike(context_of(context, group.ranks), group.ranks))
        me, ranks = current().number, group.ranks
        remote = lower(plans.allgather_objects)(self, ranks)
        others = next((each for each in remote if each), ())
        return Intercomm.of(State(context, ranks, me, others) if me in ranks and others else None)

    def Free(self) -> None:
        """Become COMM_NULL."""
        if self._predefined is not None:
            raise Exception(ERR_COMM, f"{self.Get_name()} cannot be freed")
        for keyval in list(self._state.attributes):
            self.Delete_attr(keyval)
        for context in (self._state.context, self._state.context + 1):
            current().matching.forget(context)
        self._own = None

    free = Disconnect = Free

    # Attributes and information of the communicator.

    def Get_name(self) -> str:
        """Return the name."""
        return self._state.name

    def Set_name(self, name: str) -> None:
        """Set the name."""
        self._state.name = name

    name = property(Get_name, Set_name)

    def Get_info(self) -> Info:
        """Return the hints."""
        return Info.Create(self._state.info)

    def Set_info(self, info: Info) -> None:
        """Store hints. They have no effect."""
        if info:
            self._state.info = dict(info.items())

    info = property(Get_info, Set_info)

    def Get_errhandler(self) -> Errhandler:
        """Return the error handler."""
        return Errhandler(self._state.errhandler or ERRORS_RETURN)

    def Set_errhandler(self, errhandler: Errhandler) -> None:
        """Set the error handler: errors are always exceptions here."""
        self._state.errhandler = Errhandler(errhandler)

    def Call_errhandler(self, errorcode: int) -> None:
        """Do nothing."""

    @classmethod
    def Create_errhandler(cls, errhandler_fn: Any) -> Errhandler:
        """Not supported."""
        raise unsupported("MPI.Comm.Create_errhandler", "errors are exceptions")

    def Get_attr(self, keyval: int) -> Any:
        """Return the value of an attribute."""
        fixed = {TAG_UB: TAG_MAX, HOST: PROC_NULL, IO: PROC_NULL, WTIME_IS_GLOBAL: 0, APPNUM: 0, LASTUSEDCODE: ERR_LASTCODE}
        if keyval == UNIVERSE_SIZE:
            return current().size
        self._checked_key(keyval, keyval in fixed)
        return fixed[keyval] if keyval in fixed else self._state.attributes.get(keyval)

    def Set_attr(self, keyval: int, attrval: Any) -> None:
        """Set an attribute."""
        self._checked_key(keyval)
        if keyval in self._state.attributes:
            self.Delete_attr(keyval)
        self._state.attributes[keyval] = attrval

    def Delete_attr(self, keyval: int) -> None:
        """Delete an attribute."""
        self._checked_key(keyval, keyval in self._state.attributes)
        value = self._state.attributes.pop(keyval, None)
        delete = _functions.get(keyval, (None, None))[1]
        if callable(delete):
            delete(self, keyval, value)

    def _checked_key(self, keyval: int, is_known: bool = False) -> None:
        if not is_known and keyval not in _functions:
            raise Exception(ERR_KEYVAL, f"{keyval}")

    @classmethod
    def Create_keyval(cls, copy_fn: Any = None, delete_fn: Any = None, nopython: bool = False) -> int:
        """Create a key for attributes, with callbacks for copying and deleting its values."""
        keyval = next(_keyvals)
        _functions[keyval] = (copy_fn, delete_fn)
        return keyval

    @classmethod
    def Free_keyval(cls, keyval: int) -> int:
        """Free a key."""
        if keyval not in _functions:
            raise Exception(ERR_KEYVAL, f"{keyval}")
        return KEYVAL_INVALID

    def Abort(self, errorcode: int = 0) -> NoReturn:
        """End the whole program with that exit status."""
        current().abort(errorcode)
        raise AssertionError("it does not return")

    @classmethod
    def Get_parent(cls) -> Any:
        """Return COMM_NULL: no program has spawned this one."""
        return Intercomm.of(None)

    def Attach_buffer(self, buf: Any) -> None:
        """Do nothing: data of sends are always copied."""

    def Detach_buffer(self) -> None:
        """Do nothing."""

    def Flush_buffer(self) -> None:
        """Do nothing."""

    # Collective calls.

    Barrier, Ibarrier, Barrier_init = upper(plans.barrier)
    Bcast, Ibcast, Bcast_init = upper(plans.bcast)
    Gather, Igather, Gather_init = upper(plans.gather)
    Gatherv, Igatherv, Gatherv_init = upper(plans.gatherv)
    Scatter, Iscatter, Scatter_init = upper(plans.scatter)
    Scatterv, Iscatterv, Scatterv_init = upper(plans.scatterv)
    Allgather, Iallgather, Allgather_init = upper(plans.allgather)
    Allgatherv, Iallgatherv, Allgatherv_init = upper(plans.allgatherv)
    Alltoall, Ialltoall, Alltoall_init = upper(plans.alltoall)
    Alltoallv, Ialltoallv, Alltoallv_init = upper(plans.alltoallv)
    Alltoallw, Ialltoallw, Alltoallw_init = upper(plans.alltoallw)
    Reduce, Ireduce, Reduce_init = upper(plans.reduce)
    Allreduce, Iallreduce, Allreduce_init = upper(plans.allreduce)
    Reduce_scatter_block, Ireduce_scatter_block, Reduce_scatter_block_init = upper(plans.reduce_scatter_block)
    Reduce_scatter, Ireduce_scatter, Reduce_scatter_init = upper(plans.reduce_scatter)
    barrier, bcast = lower(plans.barrier), lower(plans.bcast_object)
    gather, scatter = lower(plans.gather_objects), lower(plans.scatter_objects)
    allgather, alltoall = lower(plans.allgather_objects), lower(plans.alltoall_objects)
    reduce, allreduce = lower(plans.reduce_objects), lower(plans.allreduce_objects)

    def __getattr__(self, name: str) -> Any:
        if name in _UNSUPPORTED:
            raise unsupported(f"MPI.Comm.{name}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Comm):
            return NotImplemented
        mine, its = self._found(), other._found()
        return mine is its or (mine is not None and its is not None and mine.context == its.context)

    def __hash__(self) -> int:
        state = self._found()
        return hash(None if state is None else state.context)

    def __bool__(self) -> bool:
        return self._found() is not None

    def __reduce__(self) -> Any:
        for name, constant in {"COMM_WORLD": COMM_WORLD, "COMM_SELF": COMM_SELF, "COMM_NULL": COMM_NULL}.items():
            if self == constant:
                return name if self is constant else (_copied, (type(self), name))
        raise ValueError("a communicator cannot be pickled: its ranks are those that made it")


_UNSUPPORTED = {
    "Spawn", "Spawn_multiple", "Accept", "Connect", "Join", "Revoke", "Is_revoked", "Get_failed", "Ack_failed", "Agree", "Iagree",
    "Shrink", "Ishrink", "Iflush_buffer", "toint", "fromint", "py2f", "f2py", "handle", "fromhandle",
}  # fmt: skip


def _copied(cls: type[Comm], name: str) -> Comm:
    return cls(globals()[name])


class Intracomm(Comm):
    """A communicator of one group."""

    @staticmethod
    def _fits(state: State) -> bool:
        return state.remote is None

    Scan, Iscan, Scan_init = upper(plans.scan)
    Exscan, Iexscan, Exscan_init = upper(plans.exscan)
    scan, exscan = lower(plans.scan_objects), lower(plans.exscan_objects)

    def Create_group(self, group: Group, tag: int = 0) -> Any:
        """Create a communicator of some of the ranks; only these ranks call this."""
        state = self._state
        state.attributes.setdefault(_GROUPS, {})
        made: dict[Any, int] = state.attributes[_GROUPS]
        made[group.ranks, tag] = made.get((group.ranks, tag), 0) + 1
        context = context_of(state.context, "group", group.ranks, tag, made[group.ranks, tag])
        return Intracomm.of(self._alike(context, group.ranks))

    def Create_intercomm(self, local_leader: int, peer_comm: Any, remote_leader: int, tag: int = 0) -> Any:
        """Create an inter-communicator with another group. The leaders of both groups communicate over `peer_comm`."""
        state = self._state
        context = state.child("inter")
        of_leader = None
        if state.rank == local_leader:
            of_leader = peer_comm.sendrecv((state.group, context), remote_leader, tag, None, remote_leader, tag)
        remote, other = self.bcast(of_leader, root=local_leader)
        return Intercomm.of(State(context_of(*sorted((context, other))), state.group, current().number, tuple(remote)))

    @classmethod
    def Create_from_group(cls, *_: Any, **__: Any) -> Any:
        """Not supported."""
        raise unsupported("MPI.Intracomm.Create_from_group", "sessions")


#: Key under which a communicator counts the groups created from it.
_GROUPS = -2


class Intercomm(Comm):
    """A communicator between two groups. Ranks refer to the other group."""

    @staticmethod
    def _fits(state: State) -> bool:
        return state.remote is not None

    @classmethod
    def Create_from_groups(cls, *_: Any, **__: Any) -> Any:
        """Not supported."""
        raise unsupported("MPI.Intercomm.Create_from_groups", "sessions")

    def Get_remote_size(self) -> int:
        """Return the number of ranks of the other group."""
        return len(self._remote())

    def Get_remote_group(self) -> Group:
        """Return the other group."""
        return Group.of(self._remote())

    remote_size, remote_group = property(Get_remote_size), property(Get_remote_group)

    def _remote(self) -> tuple[int, ...]:
        remote = self._state.remote
        if remote is None:
            raise Exception(ERR_TYPE, "it has one group")
        return remote

    def Merge(self, high: bool = False) -> Any:
        """Create a communicator of both groups. The ranks of the group that passes a true value follow those of the other."""
        state, me = self._state, current().number
        context = state.child("merge")
        other = self.allgather(bool(high))[0]
        if bool(high) != other:
            is_first = not high
        else:
            is_first = min(state.group) < min(self._remote())
        group = state.group + self._remote() if is_first else self._remote() + state.group
        return Intracomm.of(State(context, group, me))


COMM_WORLD = Intracomm.predefined("world")
COMM_SELF = Intracomm.predefined("self")
COMM_NULL = Comm()


def own_communicators() -> dict[str, Any]:
    """Create the predefined communicators of a rank, by name."""
    rank = current()
    world = State(2, _all_ranks(rank.size), rank.number)
    alone = State(4, (rank.number,), rank.number)
    world.name, alone.name = "MPI_COMM_WORLD", "MPI_COMM_SELF"
    return {"world": world, "self": alone}


@cache
def _all_ranks(size: int) -> tuple[int, ...]:
    """Return the ranks of the world. The ranks of a process share the tuple."""
    return tuple(range(size))
