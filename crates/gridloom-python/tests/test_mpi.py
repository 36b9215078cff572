"""Programs of mpi4py on ranks that are chares: on one element, on several, and in simulation."""

import json
import os
import pathlib
import subprocess
import sys

import gridloom as gl
import pytest

pytest.importorskip("greenlet")

PROGRAM = pathlib.Path(gl.__file__).parent / "bin" / "gridloom"
ROOT = pathlib.Path(__file__).resolve().parents[3]


def gridloom(*words):
    return run(PROGRAM, *words)


def run(*words):
    environment = {**os.environ, "GRIDLOOM_PYTHON": sys.executable}
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=240, env=environment)


def ranks(count, *program):
    """All ranks on one element."""
    return run(sys.executable, "-m", "gridloom.mpi", "-n", count, *program)


BEGIN = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
me, size = comm.rank, comm.size
"""


def passes(tmp_path, text, *words, count=4):
    """The program runs to its end on every rank; on several elements with `words`. What it printed."""
    program = tmp_path / "program.py"
    program.write_text(BEGIN + text + "\ncomm.Barrier()\nprint('ended', me)\n")
    done = gridloom("mpirun", "-n", count, *words, program) if words else ranks(count, program)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {line for line in lines if line.startswith("ended")} == {f"ended {rank}" for rank in range(count)}
    return [line for line in lines if not line.startswith("ended")]


LONG = """
elements = (1 << 27) + 1000
if me == 0:
    long = np.zeros(elements)
    long[0], long[-1] = 3, 7
    comm.Send(long, 1)
else:
    long = np.empty(elements)
    comm.Recv(long, 0)
    assert (long[0], long[-1], np.count_nonzero(long)) == (3, 7, 2)
"""


@pytest.mark.skipif(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 8 << 30, reason="needs 8 GiB of free memory")
@pytest.mark.parametrize("words", [(), ("--elements", 2)])
def test_a_message_may_be_longer_than_1_gib(tmp_path, words):
    passes(tmp_path, LONG, *words, count=2)


POINT_TO_POINT = """
# Non-overtaking, with wildcards.
if me == 0:
    for number in range(5):
        comm.send(("a", number), 1, tag=number % 2)
    comm.Send(np.arange(6.0), 1, tag=9)
if me == 1:
    assert [comm.recv(source=0, tag=1)[1] for _ in range(2)] == [1, 3]
    status = MPI.Status()
    assert [comm.recv(status=status)[1] for _ in range(3)] == [0, 2, 4]
    assert (status.Get_source(), status.Get_tag()) == (0, 0)
    comm.Probe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
    assert (status.tag, status.Get_count(MPI.DOUBLE)) == (9, 6)
    got = np.zeros(6)
    comm.mprobe(0, 9).Recv(got)
    assert got[5] == 5 and not comm.iprobe()
comm.Barrier()

# Receives are posted before the sends.
into = [np.zeros(3, "i") for _ in range(size)]
requests = [comm.Irecv(into[rank], rank, 5) for rank in range(size)]
requests += [comm.Isend(np.full(3, me, "i"), rank, 5) for rank in range(size)]
MPI.Request.Waitall(requests)
assert [int(one[2]) for one in into] == list(range(size)) and not any(requests)
never = comm.irecv(source=me, tag=77)
assert never.test() == (False, None)
never.Cancel()
status = MPI.Status()
assert never.Wait(status) and status.Is_cancelled()
request = comm.irecv(source=(me + 1) % size, tag=7)
comm.ssend({"from": me}, (me - 1) % size, tag=7) if me % 2 else comm.issend({"from": me}, (me - 1) % size, tag=7)
assert request.wait() == {"from": (me + 1) % size}

# Polling lets the others go on.
if me == 0:
    number, flag = MPI.UNDEFINED, False
    requests = [comm.irecv(source=rank, tag=8) for rank in range(1, size)]
    while requests:
        number, flag = MPI.Request.Testany(requests)
        if flag and number != MPI.UNDEFINED:
            del requests[number]
else:
    comm.send(me, 0, tag=8)

# Types that are not contiguous.
square = np.arange(36.0).reshape(6, 6) + 100 * me
column = MPI.DOUBLE.Create_vector(6, 1, 6).Commit()
comm.Sendrecv_replace([square, 1, column], (me + 1) % size, source=(me - 1) % size)
assert square[5, 0] == 30 + 100 * ((me - 1) % size) and square[5, 1] == 31 + 100 * me

# Persistent requests.
again = comm.Recv_init(into[0], (me - 1) % size, 3), comm.Send_init(into[1], (me + 1) % size, 3)
for turn in range(3):
    into[1][:] = turn * 10 + me
    MPI.Prequest.Startall(again)
    MPI.Request.Waitall(again)
    assert into[0][0] == turn * 10 + (me - 1) % size
"""

COLLECTIVES = """
assert comm.bcast("x" * me if me == 2 else None, root=2) == "xx"
assert comm.allgather(me) == list(range(size)) and comm.alltoall([(me, to) for to in range(size)])[1] == (1, me)
assert comm.gather(me, root=1) == (list(range(size)) if me == 1 else None)
assert comm.scatter([rank * rank for rank in range(size)] if me == 3 else None, root=3) == me * me
assert comm.scan(me) == sum(range(me + 1)) and comm.exscan([me]) == (list(range(me)) if me else None)
# The order of operands is that of the ranks, for any root.
for root in range(size):
    assert comm.reduce(str(me), op=lambda x, y: x + y, root=root) == ("0123" if me == root else None)

whole = np.zeros(size * 2)
comm.Allgather(np.array([me, -me], "d"), whole)
assert whole.tolist() == [s * rank for rank in range(size) for s in (1, -1)]
counts = [rank + 1 for rank in range(size)]
parts = np.zeros(sum(counts))
comm.Gatherv(np.full(me + 1, me, "d"), [parts, counts], root=0)
assert me or parts.tolist() == [rank for rank in range(size) for _ in range(rank + 1)]
total = np.full(3, float(me))
comm.Allreduce(MPI.IN_PLACE, total, op=MPI.MAX)
assert total.tolist() == [size - 1] * 3
piece = np.zeros(2)
comm.Reduce_scatter_block(np.arange(2.0 * size), piece)
assert piece.tolist() == [size * 2 * me, size * (2 * me + 1)]
pair = np.array([(abs(me - 2) + 0.5, me)], np.dtype([("value", "d"), ("index", "i")], align=True))
lowest = np.zeros_like(pair)
comm.Allreduce([pair, 1, MPI.DOUBLE_INT], [lowest, 1, MPI.DOUBLE_INT], op=MPI.MINLOC)
assert lowest[0]["index"] == 2

def smaller(source, target, datatype):
    one, other = np.frombuffer(source, "i"), np.frombuffer(target, "i")
    other[:] = np.minimum(one, other)

own = MPI.Op.Create(smaller, commute=True)
least = np.zeros(1, "i")
comm.Allreduce(np.array([7 - me], "i"), least, op=own)
assert least[0] == 7 - (size - 1)

# Several at a time, of which the second is waited for first.
first, second = np.zeros(1, "i"), np.array([me], "i")
requests = comm.Iallreduce(np.array([1], "i"), first), comm.Ibcast(second, root=1)
requests[1].Wait()
requests[0].Wait()
assert (first[0], second[0]) == (size, 1)
try:
    comm.bcast(1, root=size)
except MPI.Exception as error:
    assert error.Get_error_class() == MPI.ERR_ROOT
"""

COMMUNICATORS = """
copy = comm.Dup()
half = comm.Split(me % 2, key=-me)
assert half.size == size // 2 and half.allgather(me) == sorted(range(me % 2, size, 2), reverse=True)
copy.send("in the copy", me)
comm.send("in the world", me)
assert comm.recv(source=me) == "in the world" and copy.recv(source=me) == "in the copy"
group = comm.Get_group().Incl([3, 0])
few = comm.Create(group)
assert few == MPI.COMM_NULL if me in (1, 2) else few.rank == (0 if me == 3 else 1)
assert comm.Compare(copy) == MPI.CONGRUENT and (not few or few.bcast(me, root=0) == 3)
copy.Free()
assert copy == MPI.COMM_NULL

grid = comm.Create_cart([2, 2], periods=[True, False])
assert grid.Get_coords(3) == [1, 1] and grid.Get_cart_rank([-1, 1]) == 3
assert grid.Shift(1, 1) == ((MPI.PROC_NULL, me + 1) if me % 2 == 0 else (me - 1, MPI.PROC_NULL))
row = grid.Sub([False, True])
assert row.allgather(me) == [me // 2 * 2, me // 2 * 2 + 1]
assert grid.neighbor_allgather(me) == [me ^ 2, me ^ 2, None if me % 2 == 0 else me - 1, me + 1 if me % 2 == 0 else None]
inter = half.Create_intercomm(0, comm, (size - 2 if me % 2 else size - 1) % size)
assert inter.Get_remote_size() == 2 and inter.allgather(me) == sorted(set(range(size)) - set(half.allgather(me)), reverse=True)
assert inter.Merge().size == size
assert MPI.Compute_dims(24, 3) == [4, 3, 2]
"""


EVERY_SIZE = """
for count in range(1, size + 1):
    part = comm.Split(0 if me < count else MPI.UNDEFINED)
    if not part:
        continue
    everyone = list(range(count))
    part.barrier()
    assert part.allgather(me) == everyone
    assert part.alltoall([me * 100 + to for to in everyone]) == [source * 100 + me for source in everyone]
    assert part.scan(str(me), op=lambda x, y: x + y) == "".join(map(str, range(me + 1)))
    assert part.exscan(str(me), op=lambda x, y: x + y) == ("".join(map(str, range(me))) if me else None)
    for root in everyone:
        assert part.bcast(me, root) == root
        assert part.gather(me, root) == (everyone if me == root else None)
        assert part.scatter([7 * to for to in everyone] if me == root else None, root) == 7 * me
        joined = part.reduce(str(me), op=lambda x, y: x + y, root=root)
        assert joined == ("".join(map(str, everyone)) if me == root else None)
    # Sums of floats have the same bits on all ranks, and those of the same tree for any root.
    mine = np.array([0.1 * (me + 1), 1e17 if me % 2 else 1.0])
    total, each = np.zeros(2), np.zeros(2 * count)
    part.Allreduce(mine, total)
    part.Allgather(total, each)
    assert (each.reshape(count, 2) == total).all()
    for root in everyone:
        at_root = np.zeros(2)
        part.Reduce(mine, at_root, root=root)
        assert me != root or (at_root == total).all()
    blocks = [rank % 3 for rank in everyone]
    own = np.zeros(blocks[me], "i")
    part.Reduce_scatter(np.arange(sum(blocks), dtype="i"), own, blocks)
    assert own.tolist() == [count * (sum(blocks[:me]) + at) for at in range(blocks[me])]
"""


def test_collective_calls_on_every_number_of_ranks(tmp_path):
    passes(tmp_path, EVERY_SIZE, count=9)


def test_parts_of_mpi4py_that_are_not_there_report_it(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import mpi4py.futures\n")
    done = ranks(1, program)
    assert done.returncode == 1 and "gridloom mpirun does not support mpi4py.futures" in done.stderr


@pytest.mark.parametrize("words", [(), ("--elements", 2), ("--elements", 3, "--placement", "round-robin")])
@pytest.mark.parametrize("text", [POINT_TO_POINT, COLLECTIVES, COMMUNICATORS])
def test_calls_of_mpi(text, words, tmp_path):
    passes(tmp_path, text, *words)


def test_each_rank_has_the_program_s_modules_to_itself(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "part.py").write_text("from mpi4py import MPI\nrank = MPI.COMM_WORLD.bcast(MPI.COMM_WORLD.rank, 1)\n")
    (tmp_path / "counter.py").write_text("count = 0\n")
    told = passes(
        tmp_path,
        """
import counter, json, package.part, __main__
assert package.part.rank == 1
json.seen = getattr(json, "seen", 0) + 1
for _ in range(3):
    counter.count += me
    comm.Barrier()
assert counter.count == 3 * me and __main__.me == me
import counter as again
assert again is counter
class Own:
    pass
assert type(comm.sendrecv(Own(), (me + 1) % size, source=(me - 1) % size)) is Own
if me == 0:
    print("shared:", json.seen)
""",
    )
    assert told == ["shared: 4"]


def test_modules_are_listed(tmp_path):
    (tmp_path / "counter.py").write_text("")
    (tmp_path / "program.py").write_text("import counter\nfrom mpi4py import MPI\nimport numpy\n")
    done = ranks(2, "--list-modules", tmp_path / "program.py")
    assert "of which each rank has its own copy: __main__, counter\n" in done.stderr and "mpi4py" in done.stderr, done.stderr


ENDS = """
import sys
if sys.argv[1] == "abort" and me == 1:
    comm.Abort(7)
if sys.argv[1] == "raise" and me == 1:
    raise LookupError("this rank")
if sys.argv[1] == "exit":
    sys.exit(me)
comm.recv(source=0, tag=3)
"""


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("abort", 7, ""),
        ("raise", 1, "LookupError: this rank"),
        ("exit", 2, ""),
        ("wait", 1, "rank 2 waits in recv(source=0, tag=3) on MPI_COMM_WORLD"),
    ],
)
@pytest.mark.parametrize("elements", [1, 2])
def test_how_a_program_ends(how, status, said, elements, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(BEGIN + ENDS)
    done = gridloom("mpirun", "-n", 3, "--elements", elements, program, how)
    assert done.returncode == status and said in done.stderr, done.stderr
    assert "gridloom/mpi" not in done.stderr, "the package's own calls are left out"


def test_what_is_wrong_or_not_supported_is_reported(tmp_path):
    told = passes(
        tmp_path,
        """
import threading
def say(call):
    try:
        call()
    except (MPI.Exception, NotImplementedError, RuntimeError, ValueError, TypeError) as error:
        print(type(error).__name__, error)
comm.Send(np.zeros(4), 0)
say(lambda: comm.Recv(np.zeros(2), 0))
say(lambda: comm.send(1, 5))
say(lambda: comm.send(1, 0, tag=-3))
say(lambda: MPI.Win.Create(None, comm=comm))
say(lambda: comm.Spawn("other"))
say(lambda: comm.Allreduce(np.zeros(2), np.zeros(3)))
say(lambda: MPI.COMM_NULL.Get_rank())
thread = threading.Thread(target=lambda: say(comm.Barrier))
thread.start()
thread.join()
""",
        count=1,
    )
    assert [line.split(":")[0] for line in told] == [
        "Exception ERR_TRUNCATE",
        "Exception ERR_RANK",
        "Exception ERR_TAG",
        "NotImplementedError gridloom mpirun does not support MPI.Win.Create",
        "NotImplementedError gridloom mpirun does not support MPI.Comm.Spawn",
        "ValueError mismatch in send count 2 and receive count 3",
        "Exception ERR_COMM",
        "RuntimeError MPI calls are made by the thread of a rank",
    ]


def test_the_command_takes_an_interpreter_and_says_what_it_cannot_run(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(BEGIN + "import sys\nprint(size, sys.argv[1:])\n")
    done = gridloom("mpirun", "-n", 2, "--elements", 1, "--label", sys.executable, program, "--option", "-n")
    assert done.stdout == "element@0| 2 ['--option', '-n']\n" * 2, done.stderr
    done = gridloom("mpirun", "-n", 2, tmp_path / "missing.py")
    assert done.returncode == 2 and "there is no such file" in done.stderr


JACOBI = ROOT / "examples" / "mpi" / "jacobi.py"


def test_the_example_is_bitwise_that_of_the_serial_loop(tmp_path):
    for words in [("--elements", 1), ("--elements", 2, "--sites", 2, "--latency", "1ms")]:
        done = gridloom("mpirun", "-n", 6, *words, JACOBI, "--steps", 8, "--check")
        assert "bitwise equal to the serial loop" in done.stdout, done.stderr


def test_a_timeline_shows_the_ranks_of_each_element(tmp_path):
    program, trace = tmp_path / "ring.py", tmp_path / "ring.json"
    program.write_text(BEGIN + "assert comm.sendrecv(me, dest=(me + 1) % size, source=(me - 1) % size) == (me - 1) % size\n")
    done = gridloom("mpirun", "-n", 4, "--elements", 2, "--trace", trace, program)
    assert done.returncode == 0, done.stderr
    events = json.loads(trace.read_text())
    ran = {(event["pid"], event["args"]["chare"]) for event in events if event["ph"] == "B" and event["name"] != "idle"}
    assert ran == {(1, "(0)"), (1, "(1)"), (2, "(2)"), (2, "(3)")}


def test_simulated_ranks(tmp_path):
    platform, deployment = tmp_path / "platform.toml", tmp_path / "elements.toml"
    platform.write_text("[[cluster]]\nname = 'c'\nhosts = 'node-[0-2]'\nspeed = '1Gf'\nbandwidth = '1Gbps'\nlatency = '1ms'\n")
    deployment.write_text(gridloom("chares", "deployment", "-p", platform).stdout)
    simulate = ["simulate", "-p", platform, "-d", deployment, "--", sys.executable, "-m", "gridloom.mpi", "-n", 8]
    done = gridloom(*simulate, JACOBI, "--steps", 8, "--check")
    assert "bitwise equal to the serial loop" in done.stdout and "trace hash" in done.stdout, done.stderr
    # A message between two hosts takes its latency, in virtual time. The first rank and the last one are on different hosts.
    program = tmp_path / "program.py"
    there, back = "comm.send(1, 7), comm.recv(source=7)", "comm.send(comm.recv(source=0), 0)"
    program.write_text(
        BEGIN
        + f"began = MPI.Wtime()\nif me == 0:\n    {there}\n    assert MPI.Wtime() - began > 0.002\nif me == 7:\n    {back}\n"
    )
    done = gridloom(*simulate, program)
    assert done.returncode == 0, done.stderr
