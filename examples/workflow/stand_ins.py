"""Stand-ins for the programs of a recorded workflow, for `gridloom serve`: each waits as long as the task took, and writes files of the same sizes.

WORKFLOW names the recorded workflow, and SCALE is the factor of its times and sizes.
"""

import os
import pathlib
import sys

import gridloom as gl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import recorded  # noqa: E402

gl_module = "workflow"

# The shell itself writes small files, since a process for each would take longer than many of the tasks.
WRITES = 'if [ "$2" -le 1000000 ]; then printf "%$2s" "" > "$1"; else head -c "$2" /dev/zero > "$1"; fi'
WAITS_AND_WRITES = f'sleep "$1"; shift; while [ $# -gt 0 ]; do {WRITES}; shift 2; done'
# Maximum number of files: the limit of a function's parameters, minus one for the time.
FILES_MAX = 127


def stand_in(task, files):
    """A function with the files of a task. Its work is the time stated in the call: 1 s at 1 Gflop/s."""
    count = len(task["inputs"]) + len(task["outputs"])
    if count > FILES_MAX:
        raise SystemExit(f"task {task['id']} has {count} files, and a function takes {FILES_MAX} at most: take another workflow")
    outputs = {f"out{number}": f"made/{number}" for number in range(len(task["outputs"]))}
    sizes = {one: str(files[name]) for one, name in zip(outputs, task["outputs"])}
    written = [word for one, size in sizes.items() for word in (f"{{{one}}}", size)]
    return gl.program(
        ["sh", "-c", WAITS_AND_WRITES, "stand-in", "{seconds}", *written],
        inputs=[f"in{number}" for number in range(len(task["inputs"]))],
        outputs=outputs,
        parameters={"seconds": float},
        name=recorded.function_of(task),
        work="1e9*seconds",
        sizes=sizes,
    )


workflow = recorded.read(os.environ["WORKFLOW"], float(os.environ.get("SCALE", "1")))
globals().update({f"task_{number}": stand_in(one, workflow["files"]) for number, one in enumerate(workflow["tasks"])})
