"""What notebooks show, and sessions without a block."""

import html.parser
import json
import os
import pickle
import re
import subprocess
import sys
import xml.etree.ElementTree

import gridloom as gl
import numpy as np
import pytest
from bad_functions import wait_until
from conftest import FUNCTIONS
from test_plans import names, planned, record

OPEN = {"p", "br", "hr", "img", "meta"}


class Reader(html.parser.HTMLParser):
    """Texts, and whether tags match."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.styles = [], [], []

    def handle_starttag(self, tag, attrs):
        assert tag != "script"
        self.styles += [value for name, value in attrs if name == "style"]
        if tag not in OPEN:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in OPEN:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def shown(thing):
    """The text of what is shown; the markup is in order, and the notebook gives its colours."""
    text = thing._repr_html_()
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        xml.etree.ElementTree.fromstring(drawing)
    for style in reader.styles:
        # What has a colour of its own has a background of its own, too, but for the squares of a legend.
        assert ("color:#" in style) == ("background:#" in style) or re.fullmatch("color:#[0-9a-f]+", style), style
    return " ".join(" ".join(reader.texts).split())


def rows(thing):
    """Rows of two columns, as a dict."""
    cells = re.findall(r"<tr><th[^>]*>([^<]*)</th><td[^>]*>([^<]*)</td></tr>", thing._repr_html_())
    return {name: html.unescape(value) for name, value in cells}


def test_a_grid_shows_its_servers(world):
    text = shown(world)
    servers = world.servers()
    assert f"gridloom.Grid {'simulated' if world.simulated else 'real'}, 3 servers, 3 slots" in text
    for server in servers:
        assert re.search(rf"{server.name} 1 (not measured|[\d.]+ .?flop/s) [\d.]+ .?B {len(server.functions)}( |$)", text), text


def test_a_group_and_its_handles_show_how_far_they_are(world):
    matmul = world.function("tests/matmul")
    group = world.group("heft")
    assert rows(group) == {"state": "no calls", "calls": "0", "heuristic": "heft"}
    a = np.eye(3)
    with group:
        first = matmul(a, a)
        assert rows(group)["state"] == "recording: 1 not launched" and rows(first)["state"] == "recorded"
        assert rows(first) == {
            "function": "tests/matmul", "state": "recorded", "kind": "array", "shape": "(3, 3)", "dtype": "float64", "size": "72 B"
        }  # fmt: skip
        group.launch()
        second = matmul(first, a)
        assert (rows(first)["state"], rows(second)["state"]) == ("launched", "recorded")
    assert rows(second)["state"] in ("launched", "ended")
    assert re.fullmatch("running: [012] of 2 calls ended|ended", rows(group)["state"])
    second.get()
    assert rows(second)["state"] == "fetched"
    group.wait()
    makespan = f"{'simulated' if world.simulated else 'measured'} makespan"
    # What waits for nothing is shown without being asked for.
    assert rows(first)["state"] == rows(group)["state"] == "ended" and makespan in rows(group)
    report = group.report()
    told = rows(group)
    assert told["calls"] == "2" and told[makespan] == f"{report.measured_seconds:.4g} s"
    assert "predicted makespan" in told and "report() waits" not in shown(group)
    # Calls that come later are in no report yet.
    with group:
        matmul(a, a)
    assert rows(group)["calls"] == "3" and re.fullmatch(r"running: 2 of 3 calls ended|ended", rows(group)["state"])


def test_what_is_discarded_or_fails_is_shown(grid):
    halve = grid.function("tests/halve")
    group = grid.group()
    with pytest.raises(ZeroDivisionError), group:
        _, forgotten = halve(np.ones(2))
        raise ZeroDivisionError("a <b>")
    assert rows(forgotten)["state"] == "discarded"
    assert "<b>" not in re.sub(r"<b>gridloom.Group</b>", "", group._repr_html_())
    assert rows(group)["state"] == "its block raised ZeroDivisionError: a <b>"
    with grid.group() as group:
        _, kept = halve(np.ones(2))
        group.launch()
        _, other = halve(np.ones(2))
        group.discard()
        _, last = halve(np.ones(2))
    assert kept.get() == last.get() == 0.5
    assert [rows(one)["state"] for one in (kept, other, last)] == ["fetched", "discarded", "fetched"]
    with grid.group(lambda problem: [0] * len(problem.tasks)) as group:
        failed = grid.function("tests/wrong_scalar")()
    with pytest.raises(gl.SignatureError) as told:
        failed.get()
    assert rows(failed)["state"] == f"failed: SignatureError: {told.value}"
    assert rows(group)["heuristic"] == "<lambda>"
    with pytest.raises(gl.SignatureError):
        group.wait()


def test_a_loop_is_shown(grid):
    with grid.group(regroup=2) as group:
        _, half = grid.function("tests/halve")(np.ones(2))
    assert "held back" in rows(group)["state"] and "held back" in rows(half)["state"]
    assert half.get() == 0.5


def test_a_plan_and_a_report_are_drawn(world, tmp_path):
    plan = planned(world)
    plan.gantt(tmp_path / "plan.svg")
    drawing = (tmp_path / "plan.svg").read_text()
    assert drawing.partition("<svg ")[2] in plan._repr_html_()
    assert rows(plan)["heuristic"] == "heft" and rows(plan)["predicted makespan"] == f"{plan.makespan_seconds:.4g} s"
    shown(plan)
    group = world.group(plan)
    assert rows(group)["heuristic"] == "a given plan, by heft"
    record(world, group).get()
    report = group.report()
    text = shown(report)
    assert "Predicted by given" in text and f"{'Simulated' if world.simulated else 'Measured'}: " in text and report._repr_html_().count("<svg") == 2
    assert all(link in text for link in report.by_link)
    assert pickle.loads(pickle.dumps(report))._repr_html_() == report._repr_html_()
    # The times of such a plan are not known.
    moved = report.plans[0].move(0, names(world)[1])
    assert rows(moved)["predicted makespan"] == "not known" and "cannot be drawn" in shown(moved)


def test_large_drawings_are_not_shown(world, monkeypatch):
    plan = planned(world)
    group = world.group(plan)
    record(world, group).get()
    report = group.report()
    for bound in (len(plan._raw.gantt("plan.svg")) - 1, 1):
        monkeypatch.setattr("gridloom.display.html._DRAWING_BYTES_MAX", bound)
        for one, remedy in ((plan, "gantt('plan.svg') writes it"), (report, "save_timeline('timeline.html') writes it")):
            assert "<svg" not in one._repr_html_() and remedy in shown(one)
    monkeypatch.setattr("gridloom.display.html._ROWS_MAX", 2)
    assert "and 1 more" in shown(world) and names(world)[2] not in shown(world)


def test_showing_changes_no_simulation(platform):
    def run(shows):
        with gl.simulate(platform, functions=[FUNCTIONS]) as grid:
            group = grid.group()
            matmul = grid.function("tests/matmul")
            with group:
                a = np.broadcast_to(0.0, (500, 500))
                first = matmul(a, a)
                if shows:
                    shown(grid), shown(group), shown(first)
                last = matmul(first, a)
            if shows:
                shown(grid), shown(group), shown(last)
            last.get()
            if shows:
                shown(group.report())
            return grid.now(), grid.simulation().trace_hash

    assert run(True) == run(False)


def test_names_are_escaped():
    plan = gl.Plan("<a>", 1.0, 1.0, 0.0, [], 0, 0, None, [], [], "", Odd())
    assert rows(plan)["heuristic"] == "<a>" and "<a>" not in plan._repr_html_() and "no &lt;times&gt;" in plan._repr_html_()


class Odd:
    def gantt(self, path):
        raise gl.UsageError("no <times>")


CELLS = """
import gridloom as gl, json, numpy as np
grid = gl.local(servers=2)
---
with grid.group() as group:
    norm = grid.function("linalg/dnrm2")(np.array([3.0, 4.0]))
---
call = grid.run(pow, 2, 5)
print(json.dumps([norm.get(), call.get(), grid.server_processes()]))
"""


def is_running(process):
    try:
        os.kill(process, 0)
        return True
    except ProcessLookupError:
        return False


def test_a_session_without_a_block_ends_with_the_program(program):
    # As a notebook runs its cells: in one module, with what each shows.
    cells = "".join(f"exec(compile({cell!r}, 'cell', 'exec'))\n" for cell in CELLS.split("---"))
    shows = "[one._repr_html_() for one in (grid, group, norm)]\n"
    done = subprocess.run([sys.executable, "-W", "error", "-c", cells + shows], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    norm, power, processes = json.loads(done.stdout)
    assert (norm, power, len(processes)) == (5.0, 32, 2)
    wait_until(lambda: not any(map(is_running, processes)))


def test_what_is_left_of_a_closed_session_is_shown(program):
    grid = gl.local(servers=1)
    with grid.group() as group:
        fetched = grid.function("linalg/dnrm2")(np.array([3.0, 4.0]))
        other = grid.function("linalg/dnrm2")(np.array([3.0, 4.0]))
    fetched.get()
    report = group.report()
    plan = report.plans[0]
    drawn = [report._repr_html_(), plan._repr_html_()]
    grid.close()
    assert repr(grid) == "<gridloom.Grid: closed>" and shown(grid) == "gridloom.Grid closed"
    assert repr(group) == "<gridloom.Group: its grid is closed>"
    assert rows(group)["state"] == rows(other)["state"] == "its grid is closed" and rows(fetched)["state"] == "fetched"
    assert repr(other) == "<gridloom.Handle: float64 of linalg/dnrm2>"
    assert [report._repr_html_(), plan._repr_html_()] == drawn
