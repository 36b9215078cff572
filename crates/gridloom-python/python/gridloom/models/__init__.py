"""Measurements: servers, links and traffic, how long functions take, calibration, and the usage of users."""

from .calibration import Calibration, CalibrationCall, CalibrationJump, CalibrationPoint
from .models import Model, ModelPoint, Models
from .server_info import Link, ServerInfo, Simulation, Traffic
from .usage import DayUsage, Usage

__all__ = [
    "Calibration",
    "CalibrationCall",
    "CalibrationJump",
    "CalibrationPoint",
    "DayUsage",
    "Link",
    "Model",
    "ModelPoint",
    "Models",
    "ServerInfo",
    "Simulation",
    "Traffic",
    "Usage",
]
