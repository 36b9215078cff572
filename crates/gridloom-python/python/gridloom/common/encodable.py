"""Text for streams that cannot encode each character: it is escaped, never lost, and printing it raises no error."""

from __future__ import annotations


def encodable(text: str, encoding: str | None) -> str:
    """The text, with an escape sequence such as ``\\xe9`` in place of each character that the encoding lacks.

    Parameters
    ----------
    text : str
        Any text, also with surrogates that stand for bytes of file names.
    encoding : str or None
        Encoding of the stream; UTF-8 if it has none.

    Returns
    -------
    str
        A text that the encoding has.
    """
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
