"""Formats comments as text for manual pages: paragraphs, lists, tables and examples are recognized by their
indentation."""

import re
import textwrap

ROW = re.compile(r"(\S.*?) {2,}(\S.*)")
#: Emphasized text: code between backticks, and names of this library.
WORD = re.compile(r"`([^`]+)`|\b((?:grpc|gridloom)_\w+|GRIDLOOM_\w+|GRPC_\w+)")


def escaped(text):
    """Escapes text, so that it is shown unchanged."""
    text = text.replace("\\", "\\e")
    return re.sub(r"^(?=[.'])", r"\\&", text, flags=re.MULTILINE)


def inline(text):
    """Formats a line of running text; names of functions and code are bold."""
    marked = WORD.sub(lambda found: f"\x01{found.group(1) or found.group(2)}\x02", text)
    return escaped(marked).replace("\x01", "\\fB\\%").replace("\x02", "\\fR")


def example(lines):
    """Formats lines that are shown unchanged."""
    return [".PP", ".RS 4", ".EX", *(escaped(line).replace("-", "\\-") or "" for line in lines), ".EE", ".RE"]


def running(text):
    """Formats a comment's text."""
    return tidy(blocks(text.split("\n")))


def blocks(lines):
    out, at = [], 0
    while at < len(lines):
        line = lines[at]
        below = at + 1
        while below < len(lines) and (indent(lines[below]) > indent(line) or not lines[below]):
            below += 1
        inner = dedented(lines[at + 1 : below])
        if not line:
            out.append(".PP")
            at += 1
        elif line.startswith("- "):
            out += [".IP \\(bu 2", inline(" ".join([line[2:], *(piece.strip() for piece in inner)]))]
            at = below
        elif indent(line):
            at = indented(lines, at, out)
        elif inner and is_heading(line):
            out += [f".SS {inline(line)}", *blocks(inner)]
            at = below
        elif inner and line.endswith(";"):
            out += [".TP", f"\\fB{escaped(line)}\\fR", inline(" ".join(piece.strip() for piece in inner))]
            at = below
        else:
            # A paragraph begins after a list, a table or an example.
            if at and (not lines[at - 1] or indent(lines[at - 1]) or lines[at - 1].startswith("- ")):
                out.append(".PP")
            out.append(inline(line))
            at += 1
    return out


def is_heading(line):
    return len(line) < 40 and not re.search(r"[.:;,)]$", line)


def indented(lines, at, out):
    """Formats a table if its first line is a row of one, else an example."""
    end = at
    while end < len(lines) and (indent(lines[end]) or not lines[end]):
        end += 1
    block = dedented(lines[at:end])
    while block and not block[-1]:
        block.pop()
    if not ROW.match(block[0]):
        out += example(block)
        return end
    for line in block:
        if row := ROW.fullmatch(line):
            out += [".TP", f"\\fB{escaped(row.group(1))}\\fR", inline(row.group(2))]
        elif line:
            out.append(inline(line.strip()))
    out.append(".PP")
    return end


def indent(line):
    return len(line) - len(line.lstrip())


def dedented(lines):
    margin = min((indent(line) for line in lines if line), default=0)
    return [line[margin:] for line in lines]


def tidy(lines):
    """Removes paragraph marks after another paragraph mark, and at the end."""
    out = []
    for line in lines:
        if line == ".PP" and (not out or out[-1].startswith((".PP", ".SS", ".SH"))):
            continue
        if out and out[-1] == ".PP" and line.startswith((".SS", ".SH", ".PP", ".TP", ".IP")):
            out.pop()
        out.append(line)
    while out and out[-1] == ".PP":
        out.pop()
    return out


def filled(lines):
    """Returns the same with running text in lines of the usual length."""
    out, paragraph, is_as_it_is = [], [], False

    def end():
        wrapped = textwrap.wrap(" ".join(paragraph), 79, break_long_words=False, break_on_hyphens=False)
        out.extend("\\&" + line if line.startswith((".", "'")) else line for line in wrapped)
        paragraph.clear()

    for line in lines:
        is_as_it_is = line in (".EX", ".nf") or (is_as_it_is and line not in (".EE", ".fi"))
        # The line after a .TP is a line by itself.
        if line.startswith(".") or is_as_it_is or (out and out[-1] == ".TP" and not paragraph):
            end()
            out.append(line)
        else:
            paragraph.append(line)
    end()
    return out
