"""Entry methods that wait: mailboxes, futures, reductions and channels; on one element, on several, and in simulation."""

import doctest
import pathlib
import pickle
import subprocess
import sys
import types

import gridloom as gl
import pytest
from gridloom import chares
from gridloom.chares import waiting

PROGRAM = pathlib.Path(gl.__file__).parent / "bin" / "gridloom"


def ended(program):
    return chares.run(program).value


class Waiter(chares.Chare):
    """Waits in one entry method or in several."""

    note = chares.Mailbox()

    def __init__(self):
        self.told = []

    async def by_step(self, steps):
        for step in range(steps):
            self.told.append(await self.note.receive(step))
        chares.exit(self.told)

    async def any_two(self):
        chares.exit([await self.note.receive(), await self.note.receive()])

    async def one_of_two(self, tag):
        self.told.append((tag, await self.note.receive(tag)))
        if len(self.told) == 2:
            chares.exit(self.told)

    async def ask(self):
        answers = [self.future() for _ in range(2)]
        for number, answer in enumerate(answers):
            self.array[1].answer(number, answer)
        chares.exit([await answer for answer in reversed(answers)])

    def answer(self, number, answer):
        answer.send(number * 10)

    async def sum(self):
        first = self.all_reduce(self.index[0], "sum")
        await self.all_reduce()
        largest = await self.all_reduce(self.index[0], "max")
        self.contribute((await first, largest), "gather", chares.exit)

    async def sum_to_future(self):
        total = self.future() if self.index[0] == 0 else None
        self.array.add(total) if total else None
        if total:
            chares.exit(await total)

    def add(self, total):
        self.contribute(1.5, "sum", total)

    async def until_quiet(self):
        quiet = self.future()
        self.this.note("late")
        chares.when_quiet(quiet)
        chares.exit(await quiet)

    async def talk(self, count):
        other = chares.Channel(self, self.array[1 - self.index[0]])
        second = chares.Channel(self, self.array[1 - self.index[0]])
        second.send("the other channel")
        for number in range(count):
            other.send(number, self.index[0])
        told = [await other.receive() for _ in range(count)]
        self.contribute((told, await second.receive()), "gather", chares.exit)

    async def for_ever(self):
        await self.note.receive("step", 7)

    async def foreign(self):
        await foreign()

    async def of_another(self, others):
        await others.note.receive()

    async def twice(self):
        self.future_of_both = self.future()
        self.this.second()
        await self.future_of_both

    async def second(self):
        await self.future_of_both

    async def fall(self):
        await self.note.receive()
        raise LookupError("after a wait")

    async def await_foreign_future(self, future):
        await pickle.loads(pickle.dumps(future))

    def give_future(self):
        self.array[0].await_foreign_future(self.future())

    def send_twice(self):
        answer = self.future()
        answer.send()
        answer.send()


@types.coroutine
def foreign():
    yield "what an event loop knows"


def test_the_module_s_examples():
    assert doctest.testmod(waiting).failed == 0


def test_messages_are_kept_until_the_step_that_wants_them():
    def program(job):
        waiter = job.array(Waiter, 1)[0]
        for step in (2, 0):
            waiter.note(step, "of", step)
        waiter.by_step(3)
        waiter.note(1)

    assert ended(program) == [("of", 0), None, ("of", 2)]


def test_any_message_in_the_order_of_arrival():
    def program(job):
        waiter = job.array(Waiter, 1)[0]
        waiter.note("a", 1)
        waiter.any_two()
        waiter.note("b")

    assert ended(program) == [("a", 1), "b"]


def test_several_methods_of_a_chare_wait_at_a_time():
    def program(job):
        waiter = job.array(Waiter, 1)[0]
        waiter.one_of_two("a")
        waiter.one_of_two("b")
        waiter.note("b", 1)
        waiter.note("a", 2)

    assert ended(program) == [("b", 1), ("a", 2)]


def test_futures_reductions_and_quiescence():
    assert ended(lambda job: job.array(Waiter, 2)[0].ask()) == [10, 0]
    assert ended(lambda job: job.array(Waiter, 3).sum()) == [(3, 2)] * 3
    assert ended(lambda job: job.array(Waiter, 4).sum_to_future()) == 6.0
    assert ended(lambda job: job.array(Waiter, 1)[0].until_quiet()) is None


def test_channels_keep_the_order_and_are_apart():
    told = ended(lambda job: job.array(Waiter, 2).talk(3))
    assert told == [([(number, other) for number in range(3)], "the other channel") for other in (1, 0)]


def test_methods_that_wait_at_the_end_are_reported():
    with pytest.raises(gl.ProcessError, match=r"can never end: (.*); here Waiter\(1\).for_ever waits for note\('step', 7\)$"):
        ended(lambda job: job.array(Waiter, 2)[1].for_ever())
    with pytest.raises(gl.ProcessError, match=r"and 12 more$"):
        ended(lambda job: job.array(Waiter, 20).for_ever())


def test_what_a_waiting_method_does_wrong():
    wrong = [
        (gl.UsageError, "Waiter.foreign awaits 'what an event loop knows'", lambda all: all[0].foreign()),
        (gl.UsageError, "can await only mailboxes, futures, channels and reductions of its own chare", lambda all: all[0].twice()),
        (gl.UsageError, "this future is another chare's", lambda all: all[1].give_future()),
        (gl.UsageError, r"future 1 of Waiter\(0,\) got a second value", lambda all: all[0].send_twice()),
        (gl.UsageError, "a channel joins two chares", lambda all: all[0].make(all)),
        (gl.UsageError, "cannot be pickled, and so stays on its element", lambda all: [all[0].for_ever(), all[0].pickle()]),
        (LookupError, "after a wait", lambda all: [all[0].fall(), all[0].note()]),
    ]
    Waiter.make = lambda self, other: chares.Channel(self, other)
    Waiter.pickle = lambda self: pickle.dumps(self.note)
    for error, text, call in wrong:
        with pytest.raises(error, match=text):
            ended(lambda job, call=call: call(job.array(Waiter, 2)) and None)


SEVERAL = """
from gridloom import chares

class Waiter(chares.Chare):
    note = chares.Mailbox()

    async def go(self, steps):
        count = self.array_size = await self.all_reduce(1, "sum")
        channel = chares.Channel(self, self.array[(self.index[0] ^ 1)])
        total = 0
        for step in range(steps):
            self.array[(self.index[0] + 1) % count].note(step, self.index[0])
            answer = self.future()
            self.array[(self.index[0] + 2) % count].square(step, answer)
            channel.send(step)
            total += await answer + await self.note.receive(step)
            assert await channel.receive() == step
        self.contribute(total, "sum", chares.exit)

    def square(self, of, answer):
        answer.send(of * of)

ended = chares.run(lambda job: job.array(Waiter, 6, placement="round-robin").go(10))
if ended.is_first:
    print(ended.value)
"""


def gridloom(*words):
    return subprocess.run([str(word) for word in (PROGRAM, *words)], capture_output=True, text=True, timeout=120)


def test_several_elements_real_and_simulated(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SEVERAL)
    expected = 6 * sum(step * step for step in range(10)) + 10 * sum(range(6))
    done = gridloom("chares", "run", "-n", 3, "--", sys.executable, program)
    assert done.stdout == f"element@0| {expected}\n", done.stderr
    platform, deployment = tmp_path / "platform.toml", tmp_path / "elements.toml"
    platform.write_text(
        "[[cluster]]\nname = 'c'\nhosts = 'node-[0-3]'\nspeed = '1Gf'\nbandwidth = '1Gbps'\nlatency = '50us'\n"
    )
    deployment.write_text(gridloom("chares", "deployment", "-p", platform).stdout)
    done = gridloom("simulate", "-p", platform, "-d", deployment, "--", sys.executable, program)
    assert str(expected) in done.stdout.splitlines(), done.stderr


def test_each_element_reports_its_waiting_methods(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SEVERAL.replace("channel.send(step)", "channel.send(step) if self.index[0] != 1 else None"))
    done = gridloom("chares", "run", "-n", 2, "--", sys.executable, program)
    assert done.returncode == 1 and "Waiter(0).go waits for channel to (1,)" in done.stderr, done.stderr
