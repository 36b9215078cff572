"""Message-driven objects (*chares*): many objects on each processor, each of which runs when a message for it is there.

>>> from gridloom import chares
>>> class Worker(chares.Chare):
...     def square(self, of):
...         own = of + self.index[0]
...         self.contribute(own * own, "sum", chares.exit)
>>> def program(job):
...     workers = job.array(Worker, 4)
...     workers.square(1.0)
>>> chares.run(program).value
30.0

``gridloom chares run -n 4 -- python program.py`` runs a program on four processing elements, each a process; a program that is
started by itself has one. Every element calls ``program``, which names the arrays; what it sends is sent once.
"""

from .._gridloom import RawEntry as Entry
from .._gridloom import RawTarget as Target
from .chare import (
    ByCommunication,
    Chare,
    Ended,
    Index,
    Job,
    Reducer,
    checkpoint,
    compute,
    exit,
    now,
    resize,
    run,
    when_quiet,
)
from .waiting import Channel, Future, Mailbox

__all__ = [
    "ByCommunication",
    "Channel",
    "Chare",
    "Ended",
    "Entry",
    "Future",
    "Index",
    "Job",
    "Mailbox",
    "Reducer",
    "Target",
    "checkpoint",
    "compute",
    "exit",
    "now",
    "resize",
    "run",
    "when_quiet",
]
