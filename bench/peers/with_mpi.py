"""The patterns of sharing with MPI: rank 0 reads requests from its input, and prints seconds. See run.py.

ALL-EXCHANGE is `MPI_Allgather`: each rank receives the same bytes of another, which relays can forward. ALLTOALL is `MPI_Alltoall` with
blocks of the same size, in which each rank receives different bytes of another.
"""

import json
import sys
import time

import mpi4py

# With threads, its ranks would poll with locks.
mpi4py.rc.threads = False
import numpy as np  # noqa: E402
from mpi4py import MPI  # noqa: E402

WORLD = MPI.COMM_WORLD


def next_request():
    """Receive the request of rank 0 on every rank. The ranks sleep while they wait."""
    request = None
    if WORLD.rank == 0:
        text = sys.stdin.readline()
        request = json.loads(text) if text else None
    ready = WORLD.Ibarrier()
    while not ready.Test():
        time.sleep(0.02)
    return WORLD.bcast(request, 0)


def run(pattern, size_bytes):
    half, mine = WORLD.size // 2, np.full(size_bytes, WORLD.rank, np.uint8)
    if pattern in ("ALL-EXCHANGE", "ALLTOALL"):
        all_of = np.empty((WORLD.size, size_bytes), np.uint8)
        given = np.repeat(mine, WORLD.size).reshape(all_of.shape) if pattern == "ALLTOALL" else mine
    WORLD.Barrier()
    begun = MPI.Wtime()
    if pattern == "W-To-W":
        if WORLD.rank == 0:
            WORLD.Send(mine, half)
        elif WORLD.rank == half:
            WORLD.Recv(mine, 0)
    elif pattern == "BROADCAST":
        WORLD.Bcast(mine, 0)
    elif pattern == "ALL-EXCHANGE":
        WORLD.Allgather(given, all_of)
    else:
        WORLD.Alltoall(given, all_of)
    WORLD.Barrier()
    seconds = MPI.Wtime() - begun
    if pattern in ("W-To-W", "BROADCAST"):
        assert pattern == "W-To-W" and WORLD.rank != half or mine[-1] == 0
    else:
        assert all_of[:, -1].tolist() == list(range(WORLD.size))
    return seconds


def main():
    if WORLD.rank == 0:
        print(json.dumps({"ready": WORLD.size}), flush=True)
    while (request := next_request()) is not None:
        seconds = run(request["pattern"], request["mib"] << 20)
        if WORLD.rank == 0:
            print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
