"""Groups of ranks, infos and error handlers: objects without communication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .constants import IDENT, PROC_NULL, SIMILAR, UNDEFINED, UNEQUAL
from .errors import ERR_GROUP, ERR_INFO_NOKEY, ERR_RANK, Exception
from .rank import current


class Group:
    """An ordered set of ranks of the world.

    Parameters
    ----------
    group : Group, optional
        Creates another handle of this one; the null handle if omitted.
    """

    def __init__(self, group: Group | None = None) -> None:
        self._ranks: tuple[int, ...] | None = None if group is None else group._ranks

    @classmethod
    def of(cls, ranks: Iterable[int]) -> Group:
        """Create the group of these ranks of the world."""
        made = cls()
        made._ranks = tuple(ranks)
        return made

    @property
    def ranks(self) -> tuple[int, ...]:
        """Its ranks in the world."""
        if self._ranks is None:
            raise Exception(ERR_GROUP, "it is GROUP_NULL")
        return self._ranks

    def Get_size(self) -> int:
        """Return the number of ranks."""
        return len(self.ranks)

    def Get_rank(self) -> int:
        """Return the caller's rank in the group, or UNDEFINED."""
        return self._place(current().number)

    size, rank = property(Get_size), property(Get_rank)

    def _place(self, rank: int) -> int:
        return self.ranks.index(rank) if rank in self.ranks else UNDEFINED

    def Translate_ranks(self, ranks: Sequence[int] | None = None, group: Group | None = None) -> list[int]:
        """Translate ranks of one group to ranks of another."""
        if isinstance(ranks, Group):
            ranks, group = None, ranks
        numbers = range(len(self.ranks)) if ranks is None else ranks
        other = Group.of(range(current().size)) if group is None else group
        return [PROC_NULL if number == PROC_NULL else other._place(self._one(number)) for number in numbers]

    def _one(self, number: int) -> int:
        if not 0 <= number < len(self.ranks):
            raise Exception(ERR_RANK, f"{number}, and the group has {len(self.ranks)} ranks")
        return self.ranks[number]

    def Compare(self, group: Group) -> int:
        """Compare the ranks of two groups and their order."""
        if self.ranks == group.ranks:
            return IDENT
        return SIMILAR if set(self.ranks) == set(group.ranks) else UNEQUAL

    def Dup(self) -> Group:
        """Create a copy."""
        return Group.of(self.ranks)

    @classmethod
    def Union(cls, group1: Group, group2: Group) -> Group:
        """Create the group of the ranks of either group."""
        return cls.of([*group1.ranks, *(rank for rank in group2.ranks if rank not in group1.ranks)])

    @classmethod
    def Intersection(cls, group1: Group, group2: Group) -> Group:
        """Create the group of the ranks that are in both groups."""
        return cls.of(rank for rank in group1.ranks if rank in group2.ranks)

    @classmethod
    def Difference(cls, group1: Group, group2: Group) -> Group:
        """Create the group of the ranks of the first that are not in the second."""
        return cls.of(rank for rank in group1.ranks if rank not in group2.ranks)

    Intersect = Intersection

    def Incl(self, ranks: Sequence[int]) -> Group:
        """Create the group of these ranks."""
        return Group.of([self._one(number) for number in ranks])

    def Excl(self, ranks: Sequence[int]) -> Group:
        """Create the group without these ranks."""
        out = {self._one(number) for number in ranks}
        return Group.of(rank for rank in self.ranks if rank not in out)

    def Range_incl(self, ranks: Sequence[tuple[int, int, int]]) -> Group:
        """Create the group of these ranges of ranks, given as first, last and stride."""
        return self.Incl(_ranges(ranks))

    def Range_excl(self, ranks: Sequence[tuple[int, int, int]]) -> Group:
        """Create the group without these ranges of ranks."""
        return self.Excl(_ranges(ranks))

    def Free(self) -> None:
        """Become GROUP_NULL."""
        self.Get_size()
        self._ranks = None

    free = Free

    def __eq__(self, other: object) -> bool:
        return self._ranks == other._ranks if isinstance(other, Group) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._ranks)

    def __bool__(self) -> bool:
        return self._ranks is not None

    def __reduce__(self) -> Any:
        return Group.of, (self.ranks,)


def _ranges(ranks: Sequence[tuple[int, int, int]]) -> list[int]:
    return [number for first, last, stride in ranks for number in range(first, last + (1 if stride > 0 else -1), stride)]


class Info:
    """Hints by name. They are stored and have no effect."""

    def __init__(self, info: Info | None = None) -> None:
        self._items: dict[str, str] | None = None if info is None else info._items

    @classmethod
    def Create(cls, items: Any = None) -> Info:
        """Create an empty info."""
        made = cls()
        made._items = {}
        made.update(items or {})
        return made

    @property
    def _own(self) -> dict[str, str]:
        if self._items is None:
            raise Exception(ERR_INFO_NOKEY, "it is INFO_NULL")
        return self._items

    def Dup(self) -> Info:
        """Create a copy."""
        return Info.Create(self._own)

    copy = Dup

    def Free(self) -> None:
        """Become INFO_NULL."""
        self._items = None

    free = Free

    def Get(self, key: str) -> str | None:
        """Return a value."""
        return self._own.get(key)

    def get(self, key: str, default: str | None = None) -> str | None:
        """Return a value."""
        return self._own.get(key, default)

    def Set(self, key: str, value: str) -> None:
        """Set a value."""
        self._own[key] = value

    def Delete(self, key: str) -> None:
        """Delete a value."""
        if key not in self._own:
            raise Exception(ERR_INFO_NOKEY, key)
        del self._own[key]

    def Get_nkeys(self) -> int:
        """Return the number of values."""
        return len(self._own)

    def Get_nthkey(self, n: int) -> str:
        """Return the name of a value."""
        return list(self._own)[n]

    def keys(self) -> list[str]:
        """List the names."""
        return list(self._own)

    def values(self) -> list[str]:
        """List the values."""
        return list(self._own.values())

    def items(self) -> list[tuple[str, str]]:
        """List names and values."""
        return list(self._own.items())

    def update(self, items: Any = (), **kwds: str) -> None:
        """Set several values."""
        pairs = items.items() if isinstance(items, (Mapping, Info)) else items
        self._own.update(dict(pairs), **kwds)

    def pop(self, key: str, *default: str) -> str:
        """Remove a value and return it."""
        return self._own.pop(key, *default)

    def popitem(self) -> tuple[str, str]:
        """Remove the last value and return it."""
        return self._own.popitem()

    def clear(self) -> None:
        """Delete all values."""
        self._own.clear()

    def __len__(self) -> int:
        return len(self._items or ())

    def __contains__(self, key: str) -> bool:
        return key in (self._items or ())

    def __iter__(self) -> Iterator[str]:
        return iter(self._items or ())

    def __getitem__(self, key: str) -> str:
        return self._own[key]

    def __setitem__(self, key: str, value: str) -> None:
        self._own[key] = value

    def __delitem__(self, key: str) -> None:
        del self._own[key]

    def __eq__(self, other: object) -> bool:
        return self._items is other._items if isinstance(other, Info) else NotImplemented

    def __hash__(self) -> int:
        return id(self._items)

    def __bool__(self) -> bool:
        return self._items is not None


class Errhandler:
    """An error handler. Here, an error is always an exception."""

    def __init__(self, errhandler: Errhandler | None = None) -> None:
        self.name: str = "ERRHANDLER_NULL" if errhandler is None else errhandler.name

    @classmethod
    def named(cls, name: str) -> Errhandler:
        """Create a predefined error handler."""
        made = cls()
        made.name = name
        return made

    def Free(self) -> None:
        """Become ERRHANDLER_NULL."""
        self.name = "ERRHANDLER_NULL"

    free = Free

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Errhandler) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __bool__(self) -> bool:
        return self.name != "ERRHANDLER_NULL"
