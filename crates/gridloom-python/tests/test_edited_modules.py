"""Modules of a program that are edited while servers run: what a worker process imported before is not run as if it were the new one."""

import json
import subprocess
import sys

import gridloom as gl
import pytest

PROGRAM = """
import sys
import gridloom as gl
import tasks

with gl.connect(servers=[sys.argv[1]]) as grid:
    print(grid.run(tasks.work, 1).get(), list(grid.map(tasks.work, [2])), grid.run(len, [tasks.Item()]).get())
    with gl.Executor(grid=grid, initializer=tasks.prepare) as executor:
        print(executor.submit(tasks.work, 3).result())
"""
TASKS = """
import helper

prepared = False

class Item:
    pass

def prepare():
    global prepared
    prepared = True

def work(x):
    return "VERSION", prepared, helper.name(x)
"""


@pytest.fixture
def server(program, tmp_path):
    """The address of a server whose workers find modules in the folder `there`."""
    (tmp_path / "there").mkdir()
    serve = [gl.__path__[0] + "/bin/gridloom", "serve", "--run-code", "--no-agent", "--json", "--python", sys.executable]
    with subprocess.Popen(
        [*serve, "--until-stdin-closes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path / "there"
    ) as process:
        yield json.loads(process.stdout.readline())["address"]


def write(folder, version, helper):
    (folder / "tasks.py").write_text(TASKS.replace("VERSION", version))
    (folder / "helper.py").write_text(f"def name(x):\n    return x, '{helper}'\n")


def printed(folder, address):
    (folder / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py", address], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


def test_an_edited_module_is_imported_again(server, tmp_path):
    there = tmp_path / "there"
    for version, helper, before in (("one", "first", False), ("two two", "first", False), ("two two", "the second", False)):
        write(there, version, helper)
        told, error = printed(there, server)
        assert told == [
            f"('{version}', {before}, (1, '{helper}')) [('{version}', {before}, (2, '{helper}'))] 1",
            f"('{version}', True, (3, '{helper}'))",
        ]
        assert not error
    # Nothing was edited: what functions left there stays.
    told, _ = printed(there, server)
    assert told[0].startswith("('two two', True,")


def test_another_module_of_that_name_is_reported(server, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    write(tmp_path / "there", "theirs", "same")
    write(here, "ours", "same")
    told, error = printed(here, server)
    assert told[0].startswith("('theirs', False")
    assert error.count("warning:") == 1 and f"the module 'tasks' is another one here ({tmp_path}/there/tasks.py) than in the program" in error
