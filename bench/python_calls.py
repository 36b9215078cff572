"""Null calls from Python: the cost of one, the number per second, and where the time is spent."""

import json
import pathlib
import statistics
import time

import gridloom as gl

OUT = pathlib.Path("out/bench")


def main():
    with gl.local(servers=1, functions=[OUT / "kernels.idl"], libraries=[OUT / "libkernels.so"]) as grid:
        null = grid.function("bench/null")
        rounds = []
        for _ in range(7):
            samples = []
            for _ in range(2000):
                start = time.perf_counter()
                null()
                samples.append(time.perf_counter() - start)
            submit = []
            start = time.perf_counter()
            futures = []
            for _ in range(20000):
                begin = time.perf_counter()
                futures.append(null.submit())
                submit.append(time.perf_counter() - begin)
                if len(futures) == 512:
                    for future in futures:
                        future.get()
                    futures.clear()
            for future in futures:
                future.get()
            rate = 20000 / (time.perf_counter() - start)
            rounds.append((statistics.median(samples) * 1e6, rate, statistics.median(submit) * 1e6))
    for name, values in zip(("null call p50, us", "pipelined null calls, 1/s", "of which submit, us"), zip(*rounds)):
        print(f"{name:<28} {statistics.median(values):>10.1f}  ({min(values):.1f}..{max(values):.1f})")
    (OUT / "python.json").write_text(json.dumps(rounds) + "\n")


if __name__ == "__main__":
    main()
