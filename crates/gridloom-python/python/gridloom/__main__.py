"""``python -m gridloom``: the program ``gridloom`` of the package, with the same arguments."""

import sys

from .common.executable import main

if __name__ == "__main__":
    sys.exit(main())
