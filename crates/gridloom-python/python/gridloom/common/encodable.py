"""Text for streams that cannot encode every character: such characters are escaped, so none is lost and printing raises no error."""

from __future__ import annotations


def encodable(text: str, encoding: str | None) -> str:
    """Replace each character that the encoding lacks by an escape sequence such as ``\\xe9``.

    Parameters
    ----------
    text : str
        Any text; it may contain surrogates, which represent bytes of file names.
    encoding : str or None
        Encoding of the stream; UTF-8 if it has none.

    Returns
    -------
    str
        The text, which the encoding can represent.
    """
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
