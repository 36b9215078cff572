"""Types of messages between processes."""

from .declare import message, message_declaration, message_dtype

__all__ = [
    "message",
    "message_declaration",
    "message_dtype",
]
