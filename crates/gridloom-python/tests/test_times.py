"""Measured times of a group of short calls contradict nothing."""

from collections import defaultdict
from itertools import pairwise

import gridloom as gl
import numpy as np


def test_nothing_starts_before_its_inputs_or_beside_another_in_its_slot():
    width, one = 190, np.eye(8)
    with gl.local(servers=3) as grid:
        dgemm = grid.function("linalg/dgemm")
        slots = {server.name: server.slots for server in grid.servers()}
        for _ in range(5):
            with grid.group() as group:
                first = [dgemm(one, one) for _ in range(width)]
                second = [dgemm(a, b) for a, b in pairwise(first)]
                third = [dgemm(a, b) for a, b in pairwise(second)]
            report = group.report()
            reads = [[] for _ in first]
            reads += [[at, at + 1] for at in range(width - 1)]
            reads += [[width + at, width + at + 1] for at in range(width - 2)]
            _check(report, reads, slots)
            assert np.array_equal(third[0].get(), one)


def _check(report, reads, slots):
    tasks = sorted(report.tasks, key=lambda task: int(task.task))
    assert len(tasks) == len(reads) and report.tasks_failed == 0
    # A result has the number before its task's.
    there = {(int(task.task) - 1, task.server): task.end_seconds for task in tasks}
    # What moved to a place twice is there after the first time.
    last_first = sorted(report.transfers, key=lambda one: -one.end_seconds)
    moved = {(int(one.datum), one.target): one.end_seconds for one in last_first}
    assert not there.keys() & moved.keys()
    there |= moved
    for one in report.transfers:
        made = there.get((int(one.datum), one.source), 0.0)
        assert made <= one.start_seconds <= one.end_seconds <= report.measured_seconds, one
    turns = defaultdict(list)
    for task, inputs in zip(tasks, reads, strict=True):
        for at in inputs:
            assert there[int(tasks[at].task) - 1, task.server] <= task.start_seconds, (task, tasks[at])
        assert 0.0 <= task.start_seconds <= task.end_seconds <= report.measured_seconds, task
        turns[task.server] += [(task.start_seconds, 1), (task.end_seconds, -1)]
    for server, changes in turns.items():
        running = 0
        for _, change in sorted(changes):
            running += change
            assert running <= slots[server], server
