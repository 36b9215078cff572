"""The patterns of sharing with Dask: reads requests from its input, and prints seconds. See run.py.

Runs on the first server's host. BROADCAST is `scatter(broadcast=True)` from there, or with the method `tasks` a task on each worker that
reads the result of another.
"""

import json
import sys
import time

import numpy as np
from distributed import Client, wait

client = None


def make(size_bytes, value):
    return np.full(size_bytes, value, np.uint8)


def last(*arrays):
    return [int(array[-1]) for array in arrays]


def scatter(size_bytes):
    data = np.ones(size_bytes, np.uint8)
    begun = time.perf_counter()
    copies = client.scatter(data, direct=True, broadcast=True, hash=False)
    return time.perf_counter() - begun, copies


def holders(future):
    return sum(len(held) for held in client.who_has([future]).values())


def run(pattern, method, size_bytes):
    workers = sorted(one["name"] for one in client.scheduler_info(n_workers=-1)["workers"].values())
    if pattern == "BROADCAST" and method == "scatter":
        seconds, copies = scatter(size_bytes)
        assert holders(copies) == len(workers), (holders(copies), len(workers))
        return seconds
    makers = workers if pattern == "ALL-EXCHANGE" else workers[:1]
    readers = workers[len(workers) // 2 :][:1] if pattern == "W-To-W" else workers
    made = [client.submit(make, size_bytes, number, workers=[maker], pure=False) for number, maker in enumerate(makers)]
    wait(made)
    begun = time.perf_counter()
    found = client.gather([client.submit(last, *made, workers=[reader], pure=False) for reader in readers])
    seconds = time.perf_counter() - begun
    assert found == [list(range(len(makers)))] * len(readers), found
    return seconds


def main():
    global client
    with Client("tcp://client:8786", timeout=120) as client:
        client.wait_for_workers(int(sys.argv[1]), timeout=240)
        print(json.dumps({"ready": int(sys.argv[1])}), flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            seconds = run(request["pattern"], request.get("method"), request["mib"] << 20)
            print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
