"""Message-driven objects in Python: alone, as several processes, and in simulation."""

import ast
import doctest
import json
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace

import gridloom as gl
import numpy as np
import pytest
from gridloom import chares
from gridloom.chares import waiting as waits

PROGRAM = pathlib.Path(gl.__file__).parent / "bin" / "gridloom"
ROOT = pathlib.Path(__file__).resolve().parents[3]
STENCIL = ROOT / "examples" / "stencil" / "stencil.py"


def gridloom(*words, **options):
    command = [str(word) for word in (PROGRAM, *words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


class Keeper(chares.Chare):
    """Keeps what it was given."""

    def __init__(self, first=()):
        self.kept = list(first)

    def keep(self, *what, **named):
        self.kept += [*what, *sorted(named.items())]

    def tell(self):
        self.contribute(self.kept, "gather", chares.exit)

    def reduce(self, reducer, ordered=False):
        self.contribute(self.index[0] + 0.5, reducer, self.array[0].reduced, ordered=ordered)

    def reduced(self, value):
        chares.exit(value)

    def vector(self):
        self.contribute(np.arange(3) + self.index[0], "sum", chares.exit)

    def quiet(self):
        chares.exit(self.kept)

    def fall(self):
        raise LookupError("it is gone")

    def wrong(self, what):
        what(self)


def ended(program):
    return chares.run(program).value


def test_the_module_s_example():
    assert doctest.testmod(chares).failed == 0


def test_messages_go_to_one_to_some_and_to_all():
    def program(job):
        keepers = job.array(Keeper, (2, 2), ([0],))
        keepers.keep(1)
        keepers[1, 0].keep("a", b=2)
        keepers.section([(0, 0), (1, 1)]).keep(3)
        keepers.tell()

    assert ended(program) == [[0, 1, 3], [0, 1], [0, 1, "a", ("b", 2)], [0, 1, 3]]


def test_priorities_and_sparse_arrays():
    def program(job):
        keepers = job.array(Keeper, indices=[7, -2])
        for number, priority in [(1, 0), (2, 5), (3, -1)]:
            keepers[-2].keep.with_priority(priority)(number)
        chares.when_quiet(keepers[-2].quiet)

    assert ended(program) == [3, 1, 2]


@pytest.mark.parametrize(("reducer", "value"), [("sum", 8.0), ("min", 0.5), ("max", 3.5)])
def test_reductions(reducer, value):
    def program(job):
        job.array(Keeper, 4).reduce(reducer, ordered=True)

    assert ended(program) == value


def test_arrays_are_reduced_element_by_element():
    assert ended(lambda job: job.array(Keeper, 4).vector()).tolist() == [6, 10, 14]


class Word(chares.Chare):
    """Gives what the program's own reducer combines."""

    def begin(self, how, ordered=False):
        self.contribute([self.index[0]], how, chares.exit, ordered=ordered)

    async def everywhere(self, how):
        total = await self.all_reduce([self.index[0]], how)
        self.contribute(sorted(total), "gather", chares.exit)


def test_a_reducer_of_the_program_s_own():
    def program(job):
        other, joined = job.reducer(lambda one, other: one * other), job.reducer(lambda one, other: one + other)
        assert (other.number, joined.number) == (0, 1)
        job.array(Word, 5).begin(joined, ordered=True)

    assert ended(program) == [0, 1, 2, 3, 4]
    assert (
        ended(lambda job: job.array(Word, 3).everywhere(job.reducer(lambda one, other: one + other))) == [[0, 1, 2]] * 3
    )
    assert ended(lambda job: job.array(Word, 1).begin(job.reducer(lambda one, other: 1 / 0))) == [0]


def test_a_reducer_that_fails_ends_the_program_with_its_exception():
    with pytest.raises(ZeroDivisionError):
        ended(lambda job: job.array(Word, 2).begin(job.reducer(lambda one, other: 1 / 0)))
    with pytest.raises(gl.ProcessError, match="reducer 3 is not registered"):
        ended(lambda job: job.array(Word, 2).begin(chares.Reducer(3)))


def test_a_reducer_on_elements_that_are_processes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
from gridloom import chares
from gridloom.chares import waiting as waits

class Word(chares.Chare):
    def begin(self, longest):
        self.contribute("ab" * self.index[0], longest, chares.exit)

def program(job):
    print("sites", job.sites)
    job.array(Word, 9, placement="round-robin").begin(job.reducer(lambda one, other: max(one, other, key=len)))

ended = chares.run(program)
if ended.is_first:
    print(ended.value)
"""
    )
    for elements, sites in [(["-n", "3"], "(0, 0, 0)"), (["-n", "4", "--sites", "2"], "(0, 0, 1, 1)")]:
        done = gridloom("chares", "run", *elements, "--", sys.executable, program)
        assert done.returncode == 0, done.stderr
        assert "ab" * 8 in done.stdout and f"sites {sites}" in done.stdout, done.stdout


def test_a_group_and_a_placement_of_the_program_s_own():
    def program(job):
        assert (job.element, job.elements) == (0, 1)
        job.array(Keeper, 3, placement=lambda index, elements: index[0] % elements)
        job.group(Keeper, (["own"],)).tell()

    assert ended(program) == [["own"]]


def test_an_exception_in_an_entry_method_ends_the_program_with_it():
    with pytest.raises(LookupError, match="it is gone") as raised:
        ended(lambda job: job.array(Keeper, 2)[1].fall())
    assert raised.traceback[-1].name == "fall"
    assert ended(lambda job: job.array(Keeper, 1).tell()) == [[]], "another program runs after it"


def test_what_a_program_does_wrong():
    class Eager(chares.Chare):
        def __init__(self):
            self.array.hello()

        def hello(self):
            pass

    wrong = [
        (gl.UsageError, "a chare's __init__ cannot send", lambda job: job.array(Eager, 1)),
        (gl.UsageError, "placement 'near' is not known", lambda job: job.array(Keeper, 1, placement="near")),
        (gl.UsageError, "has a shape or indices", lambda job: job.array(Keeper)),
        (gl.UsageError, "is no class derived from", lambda job: job.array(dict, 1)),
        (gl.ProcessError, "the program can never end", lambda job: job.array(Keeper, 1)),
        (gl.ProcessError, r"array Keeper has no chare \(5\)", lambda job: job.array(Keeper, 2)[5].tell()),
        (gl.ProcessError, "puts (.*) on element 7, but there are only 1", lambda job: job.array(Keeper, 2, placement=lambda *_: 7)),
        (ZeroDivisionError, "division", lambda job: job.array(Keeper, 2, placement=lambda index, _: 1 // index[0])),
        (AttributeError, "no entry method 'missing'", lambda job: chares.when_quiet(job.array(Keeper, 2).missing)),
        (AttributeError, "no entry method begins with '_'", lambda job: job.array(Keeper, 2)._private()),
        (AttributeError, "missing", lambda job: job.array(Keeper, 2)[0].missing()),
        (gl.UsageError, "a callback is an entry method", lambda job: chares.when_quiet(print)),
        (TypeError, "an index is an integer", lambda job: job.array(Keeper, 2)["a"].tell()),
        (gl.ProcessError, "only a chare contributes", lambda job: Keeper.contribute(job.array(Keeper, 1))),
    ]
    for error, text, program in wrong:
        with pytest.raises(error, match=text):
            ended(program)


def test_what_a_chare_does_wrong():
    wrong = [
        (gl.UsageError, "reducer 'product' is not known", lambda chare: chare.contribute(1, "product")),
        (gl.UsageError, "'str' cannot be summed", lambda chare: chare.contribute("1", "sum")),
    ]
    for error, text, call in wrong:
        with pytest.raises(error, match=text):
            ended(lambda job, call=call: job.array(Keeper, 1)[0].wrong(call))


def test_elements_that_are_processes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
from gridloom import chares
from gridloom.chares import waiting as waits

class Ring(chares.Chare):
    def go(self, told, ring):
        told = [*told, (self.index[0], self.element)]
        if len(told) == 6:
            chares.exit(told)
        else:
            ring[(self.index[0] + 1) % 3].go(told, ring=ring)

def program(job):
    ring = job.array(Ring, 3)
    ring[0].go([], ring=ring)

ended = chares.run(program)
if ended.is_first:
    print(ended.value)
"""
    )
    done = gridloom("chares", "run", "-n", 3, "--", sys.executable, program)
    assert done.stdout == f"element@0| {[(at % 3, at % 3) for at in range(6)]}\n", done.stderr
    one = subprocess.run([sys.executable, program], capture_output=True, text=True)
    assert one.stdout == f"{[(at % 3, 0) for at in range(6)]}\n", one.stderr


def test_an_exception_of_an_element_ends_the_others(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from gridloom import chares\n"
        "class Fall(chares.Chare):\n"
        "    def fall(self):\n"
        "        assert self.index[0] != 1, 'this one'\n"
        "chares.run(lambda job: job.array(Fall, 2).fall())\n"
    )
    done = gridloom("chares", "run", "-n", 2, "--", sys.executable, program)
    assert done.returncode == 1
    assert "element@1| AssertionError: this one" in done.stderr
    assert "ProcessError: element 1 has ended the program: Fall(1).fall: AssertionError: this one" in done.stderr, done.stderr


@pytest.mark.parametrize("placement", ["round-robin", "by-communication"])
@pytest.mark.parametrize("words", [(), ("chares", "run", "-n", 2, "--sites", 2, "--")])
def test_the_stencil_is_that_of_the_serial_program(words, placement):
    program = [sys.executable, STENCIL, "--size", "96", "--steps", "12", "--chares", "9", "--placement", placement, "--check"]
    done = gridloom(*words, *program) if words else subprocess.run([str(w) for w in program], capture_output=True, text=True)
    assert done.returncode == 0 and "bitwise equal to the serial program" in done.stdout, done.stderr


FILTERS = ["compress", "rate=10MBps", "stripe=3", "delay=2ms", "jitter=3ms"]


@pytest.mark.parametrize("filters", [*([one] for one in FILTERS), FILTERS])
def test_the_stencil_is_that_of_the_serial_program_through_filters(filters):
    program = [sys.executable, STENCIL, "--size", "384", "--steps", "12", "--chares", "9", "--check"]
    options = [word for one in filters for word in ("--filter", one)]
    done = gridloom("chares", "run", "-n", 2, "--sites", 2, *options, "--", *program)
    assert done.returncode == 0 and "bitwise equal to the serial program" in done.stdout, done.stderr


def test_filters_run_between_simulated_sites_too(tmp_path):
    platform = tmp_path / "platform.toml"
    site = "[[cluster]]\nname = '{0}'\nhosts = '{0}-[0-1]'\nspeed = '1Gf'\nbandwidth = '1Gbps'\nlatency = '50us'\n"
    sites = "".join(site.format(name) + f"properties = {{ site = '{name}' }}\n" for name in ("east", "west"))
    wide = "[[link]]\nname = 'wide'\nbandwidth = '1Gbps'\nlatency = '1ms'\n"
    platform.write_text(sites + wide + "[[connect]]\nfrom = 'east'\nto = 'west'\nlinks = ['wide']\n")
    deployment = tmp_path / "elements.toml"
    program = [sys.executable, STENCIL, "--size", "96", "--steps", "5", "--check"]

    def seconds(*options):
        deployment.write_text(gridloom("chares", "deployment", "-p", platform, *options).stdout)
        done = gridloom("simulate", "-p", platform, "-d", deployment, "--", *program)
        assert done.returncode == 0 and "bitwise equal to the serial program" in done.stdout, done.stderr
        return float(re.search(r"([\d.]+) ms a step", done.stdout)[1]) / 1e3

    # Each step waits for a message that crosses the wide link, and then waits in the filter.
    assert seconds("--filter", "compress", "--filter", "delay=50ms") > 0.05 * 4 / 5 > seconds()


def test_chares_are_placed_by_what_they_send(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from gridloom import chares\n"
        "class Node(chares.Chare):\n"
        "    def tell(self):\n"
        "        self.contribute((self.element, self.array[self.index].is_at_border), 'gather', chares.exit)\n"
        # Two rings of four, joined by one thin edge. Their numbers take turns.
        "rings = [(at, (at + 2) % 8, 1000) for at in range(8)]\n"
        "placement = chares.ByCommunication([*rings, (2, 5, 1)])\n"
        "ended = chares.run(lambda job: job.array(Node, 8, placement=placement).tell())\n"
        "if ended.is_first: print(ended.value)\n"
    )
    done = gridloom("chares", "run", "-n", 2, "--sites", 2, "--", sys.executable, program)
    assert done.returncode == 0, done.stderr
    told = ast.literal_eval(done.stdout.splitlines()[0].removeprefix("element@0| ")) if done.stdout else done.stdout
    sides = [element for element, _ in told]
    assert sides in ([0, 1] * 4, [1, 0] * 4), done.stdout
    assert [at for at, (_, is_at_border) in enumerate(told) if is_at_border] == [2, 5]


def test_communication_of_chares_that_are_not_there_is_reported():
    class Node(chares.Chare):
        def tell(self):
            chares.exit(self.array.is_at_border)

    def program(edges):
        return lambda job: job.array(Node, 2, placement=chares.ByCommunication(edges)).tell()

    with pytest.raises(gl.ProcessError, match=r"array Node has no chare \(2\): it has indices from 0 to below \[2\]"):
        chares.run(program([(0, 2, 10)]))
    with pytest.raises(OverflowError):
        chares.run(program([(0, 1, -1)]))
    with pytest.raises(gl.UsageError, match=r"is_at_border is of one chare: array\[index\].is_at_border"):
        chares.run(program([(0, 1, 10)]))


def test_the_stencil_in_simulation(tmp_path):
    platform = tmp_path / "platform.toml"
    platform.write_text(
        "[[cluster]]\nname = 'c'\nhosts = 'node-[0-3]'\nspeed = '1Gf'\nbandwidth = '1Gbps'\nlatency = '50us'\n"
    )
    deployment = tmp_path / "elements.toml"
    deployment.write_text(gridloom("chares", "deployment", "-p", platform).stdout)
    program = [sys.executable, STENCIL, "--size", "96", "--steps", "5", "--check"]
    done = gridloom("simulate", "-p", platform, "-d", deployment, "--", *program)
    assert done.returncode == 0 and "bitwise equal to the serial program" in done.stdout, done.stderr
    assert "trace hash" in done.stdout


def test_a_timeline_has_each_method_that_ran(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
from gridloom import chares
from gridloom.chares import waiting as waits

class Teller(chares.Chare):
    box = chares.Mailbox()

    def tell(self):
        self.array[0].box(self.index[0])
        self.contribute(1, "sum", self.array[0].told)

    def told(self, count):
        chares.when_quiet(self.array[0].wait)

    async def wait(self):
        both = {await self.box.receive(), await self.box.receive()}
        chares.exit(sorted(both))

print(chares.run(lambda job: job.array(Teller, 2).tell()).value)
"""
    )
    trace = tmp_path / "trace.json"
    done = gridloom("chares", "run", "-n", 2, "--trace", trace, "--", sys.executable, program)
    assert done.returncode == 0 and "element@0| [0, 1]" in done.stdout, done.stderr
    events = json.loads(trace.read_text())
    names = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    assert names == {1: "element 0 (site 0)", 2: "element 1 (site 0)"}
    began = [event for event in events if event["ph"] == "B" and event["name"] != "idle"]
    ran = [(event["name"], event["args"]["chare"], event["pid"]) for event in began]
    assert sorted(ran) == [
        ("Teller.box", "(0)", 1),
        ("Teller.box", "(0)", 1),
        ("Teller.tell", "(0)", 1),
        ("Teller.tell", "(1)", 2),
        ("Teller.told", "(0)", 1),
        ("Teller.wait", "(0)", 1),
    ]


def test_what_waited_when_another_element_was_lost_is_forgotten(monkeypatch):
    class Waits(chares.Chare):
        index = (0,)
        box = chares.Mailbox()

        async def go(self):
            await self.box.receive()

    waiting = []

    def program(job):
        chare = Waits()
        chare.element = job.element
        waits.begin(chare, chare.go())
        waiting.append(len(waits._waiting))

    def makes_again(make):
        # Two simulated elements; then one again, as after a loss.
        for element in (0, 1, 0):
            make(SimpleNamespace(element=element))
        return None, True, 0, False

    monkeypatch.setattr(chares.chare._gridloom, "run_chares", makes_again)
    chares.run(program)
    assert waiting == [1, 2, 2], "that of the other element waits on"


ENTRIES = """
from gridloom import chares
from gridloom.chares import waiting as waits


class Teller(chares.Chare):
    def begin(self):
        self.array[1].tell(self.array[0].told.with_priority(-1))

    def tell(self, entry):
        entry(self.element)                                 # a call, and a callback
        self.callback = entry
        self.migrate_to(0)
        self.this.moved()

    def moved(self):
        chares.when_quiet(self.callback)

    def told(self, element=None):
        if element is None:
            chares.exit(self.first)
        self.first = element


ended = chares.run(lambda job: job.array(Teller, 2)[0].begin())
if ended.is_first:
    print(ended.value)
"""


def test_an_entry_method_is_an_argument_and_an_attribute_that_goes_to_other_elements(tmp_path):
    program = tmp_path / "entries.py"
    program.write_text(ENTRIES)
    done = gridloom("chares", "run", "-n", "2", "--", sys.executable, program)
    assert (done.returncode, done.stdout) == (0, "element@0| 1\n"), done.stderr


FLOOD = """
import hashlib
import pathlib
import re

from gridloom import chares
from gridloom.chares import waiting as waits

MESSAGES = 300
FIELD = re.compile(r"VmHWM:\\s+(\\d+) kB")


def peak_mib():
    return int(FIELD.search(pathlib.Path("/proc/self/status").read_text())[1]) / 1024


class Flood(chares.Chare):
    def __init__(self):
        self.came, self.ticks, self.began_mib = 0, 0, peak_mib()

    def produce(self, left):
        self.array[1].take(bytes(1 << 20))
        if left > 1:
            self.this.produce(left - 1)

    def tick(self, left):
        self.ticks += 1
        if left > 1:
            self.this.tick(left - 1)

    def take(self, data):
        chares.compute(1e8)
        for _ in range(3):
            hashlib.sha256(data)
        self.came += 1
        if self.came == MESSAGES:
            chares.when_quiet(self.array.tell)

    def tell(self):
        self.contribute([self.came, self.ticks, peak_mib() - self.began_mib], "gather", chares.exit)


def program(job):
    job.mailbox_bytes(8 << 20)
    flood = job.array(Flood, 3, placement="round-robin")
    flood[0].produce(MESSAGES)
    flood[2].tick(1000)                  # on the element of chare 0


ended = chares.run(program)
if ended.is_first:
    print(list(ended.value))
"""


@pytest.mark.parametrize("world", ["real", "simulated"])
def test_a_slow_receiver_s_memory_has_a_bound(tmp_path, world):
    """300 MiB for one chare, of which 8 MiB may wait there and as much here; its sender is parked, and the sender's neighbour runs."""
    program = tmp_path / "flood.py"
    program.write_text(FLOOD)
    if world == "real":
        done = gridloom("chares", "run", "-n", "2", "--", sys.executable, program)
    else:
        platform, deployment = tmp_path / "platform.toml", tmp_path / "elements.toml"
        cluster = 'name = "pair"\nhosts = "host-[0-1]"\nspeed = "1Gf"\nbandwidth = "10GBps"\nlatency = "5us"\n'
        platform.write_text("[[cluster]]\n" + cluster)
        deployment.write_text(gridloom("chares", "deployment", "-p", platform, "-n", "2").stdout)
        done = gridloom("simulate", "-p", platform, "-d", deployment, "--", sys.executable, program)
    assert done.returncode == 0, done.stderr
    told = ast.literal_eval(done.stdout.splitlines()[0].removeprefix("element@0| "))
    assert [tuple(came) for *came, _ in told] == [(0, 0), (300, 0), (0, 1000)]
    assert all(grown_mib < 120 for *_, grown_mib in told), told


def test_elements_of_python_programs_are_processes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("from gridloom import chares\nchares.run(lambda job: None)\n")
    done = gridloom("chares", "run", "-n", "2", "--ppn", "2", "--", sys.executable, program)
    assert done.returncode == 1
    assert "UsageError: a program in Python runs each element in a process of its own" in done.stderr


def test_a_mailbox_without_room_is_refused():
    with pytest.raises(gl.InputError, match="mailbox_bytes 0: the limit must be at least 1 byte"):
        chares.run(lambda job: job.mailbox_bytes(0))
