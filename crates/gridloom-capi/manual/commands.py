"""Manual pages of the program and its commands, from their --help."""

import re
import subprocess

import roff

HEADING = re.compile(r"(\w[\w ]*):")
ITEM = re.compile(r"( {2,6})(\S.*?)(?: {2,}(\S.*))?")


def pages(program):
    """Names and texts of pages: the program's, then each command's."""
    own = said(program)
    names = commands(own)
    yield "gridloom", page(["gridloom"], own, [f"gridloom-{name}" for name in names] + ["gridrpc (7)"])
    for name in names:
        yield f"gridloom-{name}", page(["gridloom", name], said(program, name), ["gridloom"], inner(program, name))


def inner(program, name):
    """Commands of a command: each becomes a part of its page."""
    for each in commands(said(program, name)):
        yield f"gridloom {name} {each}", said(program, name, each)


def commands(text):
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.MULTILINE)
    names = re.findall(r"^  ([a-z]\w*)", listed.group(1), re.MULTILINE) if listed else []
    return [name for name in names if name != "help"]


def said(program, *command):
    return subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True).stdout


def page(words, text, others, parts=()):
    about, rest = text.split("\n", 1)
    usage = re.search(r"^Usage: (.*)$", rest, re.MULTILINE)
    between = rest[: usage.start()].strip()
    out = [".SH NAME", f"{'-'.join(words)} \\- {roff.inline(about.rstrip('.'))}"]
    out += [".SH SYNOPSIS", f".B {roff.escaped(usage.group(1))}"]
    out += [".SH DESCRIPTION", *paragraphs(between or about)]
    out += sections(rest[usage.end() :], ".SH")
    for name, part in parts:
        out += [f".SH {name.upper()}", *paragraphs(part[: part.index("Usage:")].strip())]
        call = re.search(r"^Usage: (.*)$", part, re.MULTILINE)
        out += [".PP", f"\\fB{roff.escaped(call.group(1))}\\fR", *sections(part[call.end() :], ".SS")]
    references = [f".BR {other}" if " " in other else f".BR {other} (1)" for other in others]
    return "\n".join([*out, ".SH SEE ALSO", *(line + " ," for line in references[:-1]), references[-1]]) + "\n"


def paragraphs(text):
    out = []
    for paragraph in re.split(r"\n\s*\n", text):
        out += [".PP", roff.inline(" ".join(paragraph.split()))]
    return out[1:]


def sections(text, level):
    """Arguments, options and examples."""
    out, is_example = [], False
    for line in text.split("\n"):
        heading, item = HEADING.fullmatch(line), ITEM.fullmatch(line)
        if heading:
            is_example = heading.group(1).startswith("Example")
            out += ([".EE"] if ".EX" in out[-1:] else []) + [f"{level} {heading.group(1).upper()}"]
        elif not line.strip():
            continue
        elif is_example:
            out += [".PP", f"\\fB{roff.escaped(line.strip())}\\fR"]
        elif item:
            term = roff.escaped(item.group(2)).replace("-", "\\-")
            out += [".TP", f"\\fB{term}\\fR", *([roff.inline(item.group(3))] if item.group(3) else [])]
        else:
            out.append(roff.inline(line.strip()))
    return roff.tidy(out)
