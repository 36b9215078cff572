"""The main module of a process that a function started with `multiprocessing`. It has the functions and variables of the program.

`multiprocessing` imports it instead of the program's main module; see `pickling.main_module`.
"""

import os
from pathlib import Path

from gridloom.pickling.buffers import split
from gridloom.pickling.by_value import digest, dumps
from gridloom.pickling.main_module import FILE_VARIABLE, enable
from gridloom.pickling.rebuild import rebuild

_file = Path(os.environ[FILE_VARIABLE])
enable(_file, dumps)
globals().update(rebuild(split(memoryview(_file.read_bytes()))[0], (), digest).value)
