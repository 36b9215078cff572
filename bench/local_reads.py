"""What a result costs that a program in C reads in grpc_local: not read, declared, and undeclared.

`python bench/local_reads.py` builds `local_reads.c` and runs it with a grid of its own: one server on this machine.
"""

import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
IDL = """Module local;
Define axpy(IN int n, IN double alpha, IN double x[n], INOUT double y[n])
"y := alpha x + y"
CalcOrder 2*n
{ for (int i = 0; i < n; i++) y[i] += alpha * x[i]; }
"""

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / "local.idl").write_text(IDL)
    (folder / "grid.toml").write_text('[local]\nservers = 1\nfunctions = ["local.idl"]\n')
    built = ROOT / "target" / "capi"
    flags = [f"-I{built / 'include'}", f"-L{built / 'lib'}", f"-Wl,-rpath,{built / 'lib'}", "-lgridloom", "-lm"]
    subprocess.run(["cc", "-O2", ROOT / "bench" / "local_reads.c", *flags, "-o", folder / "local_reads"], check=True)
    subprocess.run([folder / "local_reads", "grid.toml"], cwd=folder, check=True)
