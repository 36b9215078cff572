"""What all tests here share."""

import os

os.environ.setdefault("GRIDLOOM_SECRET", "of the tests")  # not that of the user, which an agent would make
