"""Chares in Python that move to other elements."""

import pathlib
import subprocess
import sys

import gridloom as gl
import pytest
from gridloom import chares
from gridloom.chares import migration

PROGRAM = pathlib.Path(gl.__file__).parent / "bin" / "gridloom"
STENCIL = pathlib.Path(__file__).resolve().parents[3] / "examples" / "stencil" / "stencil.py"


def run(elements, *command):
    words = [PROGRAM, "chares", "run", "-n", elements, "--", sys.executable, *command]
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120)


WALK = """
from gridloom import chares

class Walker(chares.Chare):
    box = chares.Mailbox()

    def __init__(self):
        self.places, self.me = [], self

    def walk(self, left):
        self.places.append(self.element)
        assert self.me is self
        if left:
            self.migrate_to((self.element + 1) % self.elements)
            self.array.section([self.index, self.index]).box(left)
            self.this.walk(left - 1)

    def tell(self):
        notes = sorted(self.box._messages)
        self.contribute((self.places, notes, self.index), "gather", chares.exit)

class Waiter(chares.Chare):
    box = chares.Mailbox()

    async def wait(self):
        await self.box.receive()

    def leave(self):
        self.migrate_to(1 - self.element)

class Member(chares.Chare):
    def leave(self):
        self.migrate_to(1 - self.element)

class Watcher(chares.Chare):
    def __init__(self, walkers):
        self.walkers = walkers

    def quiet(self):
        self.walkers.tell()
"""


def program(tmp_path, body):
    file = tmp_path / "program.py"
    file.write_text(WALK + body)
    return file


def test_a_chare_takes_its_state_and_its_mailbox_along(tmp_path):
    file = program(
        tmp_path,
        """
def start(job):
    walkers = job.array(Walker, 3)
    watcher = job.array(Watcher, 1, (walkers,))
    walkers.walk(4)
    chares.when_quiet(watcher[0].quiet)

ended = chares.run(start)
if ended.is_first:
    for places, notes, index in ended.value:
        assert places == [(index[0] + step) % 3 for step in range(5)], places
        assert notes == sorted((left,) for left in (1, 2, 3, 4) for _ in "ab"), notes
    print("walked")
""",
    )
    done = run(3, file)
    assert (done.returncode, done.stdout) == (0, "element@0| walked\n"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("waiters = job.array(Waiter, 1); waiters.wait(); waiters.leave()", "chare (0) of array Waiter cannot move: UsageError: Waiter(0).wait waits for box"),
        ("job.group(Member).leave()", "chares of array Member cannot move"),
        ("job.array(Member, 1, movable=False).leave()", "chares of array Member cannot move"),
        ("job.array(Member, 1)[0].leave()", "cannot move to element 1: there are 1"),
    ],
)  # fmt: skip
def test_a_chare_that_cannot_move_ends_the_program(tmp_path, body, why):
    done = run(1 if "there are 1" in why else 2, program(tmp_path, f"\ndef start(job):\n    {body}\n\nchares.run(start)\n"))
    assert done.returncode != 0
    assert why in done.stderr


@pytest.mark.parametrize("elements", [2, 3])
def test_the_stencil_is_that_of_the_serial_program_although_chares_move(elements):
    done = run(elements, STENCIL, "--size", "48", "--chares", "16", "--steps", "30", "--move-every", "4", "--check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bitwise equal" in done.stdout


class Slotted(chares.Chare):
    __slots__ = ("held",)


class Choosy(chares.Chare):
    def __getstate__(self):
        return {"kept": self.kept}

    def __setstate__(self, state):
        self.kept, self.dropped = state["kept"], None


def test_states_of_slots_and_of_a_class_s_own():
    slotted = Slotted.__new__(Slotted)
    slotted.held, slotted.other = [slotted], 2
    again = Slotted.__new__(Slotted)
    migration.unpack(again, migration.pack(slotted))
    assert again.held == [again]
    assert again.other == 2
    choosy = Choosy.__new__(Choosy)
    choosy.kept, choosy.dropped = 1, print
    again = Choosy.__new__(Choosy)
    migration.unpack(again, migration.pack(choosy))
    assert (again.kept, again.dropped) == (1, None)


BUSY = """
from gridloom import chares

class Busy(chares.Chare):
    def work(self, count):
        chares.compute(1e6)
        sum(range(10_000))
        if self.element == 0:
            self.this.work(count + 1)
        else:
            chares.exit(count)

def program(job):
    {balance}
    job.array(Busy, 8, placement=lambda index, elements: 0).work(0)

ended = chares.run(program)
if ended.is_first:
    print("moved", ended.moved > 0)
"""


def test_a_balancer_that_the_program_names_moves_chares(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(BUSY.format(balance='job.balance("greedy")'))
    done = run(2, file)
    assert (done.returncode, done.stdout) == (0, "element@0| moved True\n"), done.stderr
    file.write_text(BUSY.format(balance='job.balance("fair")'))
    done = run(1, file)
    assert done.returncode != 0
    assert "load balancer 'fair' is not known; there are none, greedy, refine, hierarchical, grid-aware" in done.stderr


def test_a_balancer_in_simulation_goes_by_what_chares_charge(tmp_path):
    file, platform, deployment = tmp_path / "program.py", tmp_path / "platform.toml", tmp_path / "elements.toml"
    file.write_text(BUSY.format(balance="pass"))
    platform.write_text("[[cluster]]\nname = 'c'\nhosts = 'node-[0-3]'\nspeed = '1Gf'\nbandwidth = '1Gbps'\nlatency = '50us'\n")
    command = [PROGRAM, "chares", "deployment", "-p", platform, "--balance", "refine"]
    deployment.write_text(subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout)
    words = [PROGRAM, "simulate", "-p", platform, "-d", deployment, "--", sys.executable, file]
    runs = [subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120) for _ in range(2)]
    assert all(done.returncode == 0 for done in runs), runs[0].stderr
    assert "moved True" in runs[0].stdout and "trace hash" in runs[0].stdout
    assert runs[0].stdout == runs[1].stdout


ROUNDS = """
import os, sys
from gridloom import chares

class Counter(chares.Chare):
    def __init__(self):
        self.told, self.round = [], 0

    def count(self):
        self.round += 1
        self.told.append((self.round, self.index))
        if self.round == 3 and self.element == 1 and not os.path.exists(sys.argv[2]):
            open(sys.argv[2], "w").close()
            os.abort()
        self.contribute(callback=self.array[0].counted)

    def counted(self):
        chares.checkpoint(self.array[0].saved)

    def saved(self):
        if self.round < int(sys.argv[1]):
            self.array.count()
        else:
            self.array.tell()

    def tell(self):
        self.contribute(self.told, "gather", chares.exit)

ended = chares.run(lambda job: job.array(Counter, 5).count())
if ended.is_first:
    assert ended.value == [[(number + 1, (at,)) for number in range(int(sys.argv[1]))] for at in range(5)], ended.value
    print("counted")
"""


def test_a_program_continues_from_its_checkpoint_after_an_element_was_lost(tmp_path):
    file, kept, fell = tmp_path / "program.py", tmp_path / "kept", tmp_path / "fell"
    file.write_text(ROUNDS)

    def counts(elements, rounds, *options):
        words = [PROGRAM, "chares", "run", "-n", elements, *options, "--", sys.executable, file, rounds, fell]
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120)

    done = counts(2, 5, "--checkpoint", kept, "--restarts", 1)
    assert (done.returncode, done.stdout) == (0, "element@0| counted\n"), done.stderr
    assert fell.exists()
    assert "restarts all elements from the last checkpoint" in done.stderr
    for elements in (1, 3):
        done = counts(elements, 7, "--restart", kept)
        assert (done.returncode, done.stdout) == (0, "element@0| counted\n"), done.stderr


def test_the_stencil_continues_from_a_checkpoint_with_the_same_bits(tmp_path):
    def stencil(elements, steps, *options):
        program = [sys.executable, STENCIL, "--size", 48, "--chares", 16, "--steps", steps, "--checkpoint-every", 5, "--move-every", 3, "--check"]
        words = [PROGRAM, "chares", "run", "-n", elements, *options, "--", *program]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120)
        assert (done.returncode, "bitwise equal" in done.stdout) == (0, True), done.stdout + done.stderr

    kept = tmp_path / "kept"
    stencil(2, 18, "--checkpoint", kept)
    for elements, steps in [(1, 18), (3, 31)]:
        stencil(elements, steps, "--restart", kept)
