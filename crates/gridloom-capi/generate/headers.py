"""Reads C headers: sections, comments, and the declarations that each comment documents.

A section begins with a comment `/* ---- Title ---`, which may continue with text. A comment documents what
follows it up to the next comment; a declaration without a comment belongs to the previous one. Names that end
in an underscore are left out, and so are sections "not for programs" unless they are wanted.
"""

import dataclasses
import re


@dataclasses.dataclass
class Section:
    title: str
    text: str

    @property
    def is_internal(self):
        return "not for programs" in self.title


@dataclasses.dataclass
class Unit:
    """A comment with the code that it documents."""

    section: Section
    comment: str
    #: In the form that programs see: prototypes, types, constants.
    code: list[str] = dataclasses.field(default_factory=list)
    #: Functions and macros, which have a page.
    names: list[str] = dataclasses.field(default_factory=list)
    #: Prototypes of the functions and macros.
    calls: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Header:
    name: str
    preamble: str
    units: list[Unit]


SECTION = re.compile(r"-{4} (.*?)\s*-*$")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
DIRECTIVE = re.compile(r"#(?:.*\\\n)*.*")
DEFINE = re.compile(r"#define (\w+)(\([^)]*\))?[ \t]*(.*)", re.DOTALL)
FUNCTION = re.compile(r"\b(\w+)\(")


def read(name, text, with_internal=False):
    """Returns the header of that name and text."""
    preamble, rest = None, text
    section, units = Section("", ""), []
    for kind, piece in pieces(rest):
        if kind == "comment" and preamble is None:
            preamble = plain(piece)
        elif kind == "comment":
            said = plain(piece)
            lines = said.split("\n")
            title = SECTION.match(lines[0])
            if title or not said.strip("- \n"):
                after = "\n".join(line for line in lines[1:] if not re.fullmatch(r"\s*-{5,}", line)).strip("\n")
                section = Section(title.group(1) if title else "", after)
                units.append(Unit(section, ""))
            else:
                units.append(Unit(section, said))
        elif units and (with_internal or not section.is_internal):
            declare(units[-1], piece)
    seen = set()
    for unit in units:
        again = [name for name in unit.names if name in seen]
        # Declared above and defined here.
        unit.code = [code for code in unit.code if not any(f"{name}(" in code for name in again)]
        unit.names = [name for name in unit.names if name not in again]
        seen.update(unit.names)
    return Header(name, preamble or "", [unit for unit in units if unit.code])


def in_order(read):
    """Returns headers in the order of reading: grpc.h, those that its preamble names, and the others by name."""
    names = ["grpc.h"]
    for header in read:
        names += re.findall(r"\w+\.h", header.preamble) if header.name == "grpc.h" else []
    return sorted(
        read, key=lambda header: (names.index(header.name) if header.name in names else len(names), header.name)
    )


def pieces(text):
    """Returns comments, directives and declarations in order. A comment at the end of a line belongs to the code
    of the line."""
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        if comment := COMMENT.match(text, at):
            yield "comment", comment.group()
            at = comment.end()
            continue
        directive = DIRECTIVE.match(text, at)
        end = directive.end() if directive else end_of_declaration(text, at)
        if not directive and (behind := re.compile(r"[ \t]*/\*[^\n]*\*/").match(text, end)):
            end = behind.end()
        yield "code", text[at:end]
        at = end


def end_of_declaration(text, at):
    opening = re.compile(r'extern "C" \{|\}').match(text, at)
    if opening:
        return opening.end()
    depth, is_body = 0, False
    while at < len(text):
        if comment := COMMENT.match(text, at):
            at = comment.end()
            continue
        letter = text[at]
        at += 1
        if letter == "{":
            depth += 1
            is_body = is_body or text[:at].rstrip("{ \n").endswith(")")
        elif letter == "}":
            depth -= 1
            if depth == 0 and is_body:
                return at
        elif letter == ";" and depth == 0:
            return at
    return at


def declare(unit, piece):
    """Adds a declaration or directive to the unit, if programs see it."""
    if piece.startswith("#"):
        define = DEFINE.match(piece)
        if define and not define.group(1).endswith("_") and not re.search(r"_H(PP)?$", define.group(1)):
            take_macro(unit, *define.groups())
        return
    if re.match(r'extern "C"|\}|template', piece):
        return
    bare = COMMENT.sub("", re.sub(r"__attribute__\(\(.*?\)\)\)?\s*|static inline ", "", piece))
    if bare.startswith("typedef") or "(" not in bare:
        unit.code.append(piece)
        return
    call = re.sub(r"\s*\{.*", ";", bare, flags=re.DOTALL).strip()
    unit.names.append(FUNCTION.search(call).group(1))
    unit.code.append(call)
    unit.calls.append(call)


def take_macro(unit, name, parameters, value):
    if name.startswith("GRPC_") and not value.strip():
        # It only marks that a type was defined.
        return
    # Numbers are constants; everything else is used like a function or a declaration.
    if parameters is None and re.match(r"[-(\d]", value):
        unit.code.append(f"#define {name} {value.rstrip()}")
        return
    call = name + (parameters or "")
    unit.names.append(name)
    unit.code.append(call)
    unit.calls.append(call)


def plain(comment):
    """Returns a comment's text, without its marks."""
    lines = comment.removeprefix("/*").removesuffix("*/").split("\n")
    return "\n".join([lines[0].strip(), *(re.sub(r"^ \* ?", "", line).rstrip() for line in lines[1:])]).strip()
