"""Measurements: servers, links and traffic, how long functions take, and calibration."""

from .calibration import Calibration, CalibrationCall, CalibrationJump, CalibrationPoint
from .models import Model, ModelPoint, Models
from .server_info import Link, ServerInfo, Simulation, Traffic

__all__ = [
    "Calibration",
    "CalibrationCall",
    "CalibrationJump",
    "CalibrationPoint",
    "Link",
    "Model",
    "ModelPoint",
    "Models",
    "ServerInfo",
    "Simulation",
    "Traffic",
]
