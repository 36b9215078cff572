"""Processes that talk by messages."""

from .peers import Peer, Process
from .run import ProcessRun, process, read_settings, run_processes

__all__ = [
    "Peer",
    "Process",
    "ProcessRun",
    "process",
    "read_settings",
    "run_processes",
]
