"""Parses the declarations of a header: functions, types and constants. Reads the units of `headers`; covers the C that Gridloom's
headers use, and refuses everything else."""

import dataclasses
import re

import headers


@dataclasses.dataclass(frozen=True)
class Type:
    """A number, a structure or the like, or a pointer to it."""

    name: str
    pointers: int = 0
    #: The object of the innermost pointer is const.
    is_const: bool = False


@dataclasses.dataclass(frozen=True)
class Variable:
    """A parameter of a function, or a field of a structure."""

    name: str
    type: Type
    #: Elements of an array; "" is an unknown number.
    length: str | None = None


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    result: Type
    parameters: list[Variable]
    is_variadic: bool = False


@dataclasses.dataclass(frozen=True)
class Struct:
    name: str
    fields: list[Variable]
    is_named: bool = True


class Declarations:
    """All declarations of some headers, in their order."""

    def __init__(self):
        #: Functions by name, with the header of each.
        self.functions, self.places = {}, {}
        #: Functions that macros use: not for programs.
        self.internal = set()
        #: Macros that are used like functions, and their header.
        self.macros = {}
        self.constants, self.structs, self.callbacks = {}, {}, {}
        #: Other names of types.
        self.aliases = {}
        #: Enumerations by name, with the first member of each.
        self.enumerations = {}

    def add(self, name, text):
        """Adds those of a header with that name and text."""
        for unit in headers.read(name, text, with_internal=True).units:
            for code in unit.code:
                self.take(name, unit.section, headers.COMMENT.sub("", code).strip())

    def take(self, header, section, code):
        define = re.match(r"#define (\w+) (.*)", code)
        if define:
            value = re.fullmatch(r"\(?(-?\d+)\)?", define.group(2).strip())
            if value and not section.is_internal:
                self.constants[define.group(1)] = int(value.group(1))
        elif code.startswith("typedef"):
            self.take_type(" ".join(code.split()).removeprefix("typedef ").removesuffix(";"))
        elif re.match(r"(struct|enum) \w+ \{", code):
            self.take_type(" ".join(code.split()).removesuffix(";") + " " + code.split()[1])
        elif not code.endswith(";"):
            self.macros[code.split("(")[0]] = header
        elif "(" in code and not code.startswith(("static", "template")):
            function = function_of(code.removesuffix(";"))
            if section.is_internal and function.name not in self.functions:
                self.internal.add(function.name)
            elif not section.is_internal:
                self.internal.discard(function.name)
            self.functions[function.name], self.places[function.name] = function, header

    def take_type(self, text):
        """Reads a type, as it follows `typedef`."""
        if whole := re.fullmatch(r"struct (\w+) \{(.*)\} (\w+)", text):
            self.structs[whole.group(3)] = Struct(whole.group(3), self.fields_of(whole.group(3), whole.group(2)))
            self.aliases[f"struct {whole.group(1)}"] = Type(whole.group(3))
        elif whole := re.fullmatch(r"enum (?:\w+ )?\{(.*)\} (\w+)", text):
            value, members = -1, []
            for member in filter(None, (part.strip() for part in whole.group(1).split(","))):
                name, _, given = (part.strip() for part in member.partition("="))
                value = int(given) if given else value + 1
                self.constants[name] = value
                members.append(name)
            self.enumerations[whole.group(2)] = members[0]
        elif whole := re.fullmatch(r"(.*)\(\*(\w+)\)\((.*)\)", text):
            self.callbacks[whole.group(2)] = function_of(f"{whole.group(1)}{whole.group(2)}({whole.group(3)})")
        else:
            variable = variable_of(text)
            self.aliases[variable.name] = variable.type

    def fields_of(self, struct, body):
        fields = []
        for part in apart(body, ";"):
            if whole := re.fullmatch(r"struct \{(.*)\} (\w+)", part):
                # A structure without a name.
                name = f"{struct}_{whole.group(2)}"
                self.structs[name] = Struct(name, self.fields_of(name, whole.group(1)), is_named=False)
                fields.append(Variable(whole.group(2), Type(name)))
                continue
            first, *others = apart(part)
            kind = re.match(r"(?:const )?(?:struct )?\w+", first).group()
            fields += [variable_of(first), *(variable_of(f"{kind} {other}") for other in others)]
        return fields

    def resolved(self, kind):
        """Returns a type without other names, except those of structures, enumerations and functions."""
        while kind.name in self.aliases:
            other = self.aliases[kind.name]
            kind = Type(other.name, other.pointers + kind.pointers, kind.is_const or other.is_const)
        return kind


def function_of(text):
    before, _, rest = " ".join(text.split()).partition("(")
    declared = variable_of(before)
    parts = list(apart(rest.removesuffix(")")))
    is_variadic = parts[-1:] == ["..."]
    parameters = [variable_of(part) for part in parts[: -1 if is_variadic else None] if part != "void"]
    return Function(declared.name, declared.type, parameters, is_variadic)


#: Two of them are all that is needed: `const char *const *` and the like.
VARIABLE = re.compile(r"(const )?((?:struct )?\w+) ?((?:\* ?(?:const ?)?)*)(\w*)(?:\[(\w*)\])?")


def variable_of(text):
    text = text.strip()
    if called := re.fullmatch(r"\w+ \(\*(\w*)\)\(.*\)", text):
        return Variable(called.group(1), Type("function"))
    match = VARIABLE.fullmatch(text)
    if not match:
        raise ValueError(f"'{text}' is none of the declarations that are understood here: see {__file__}")
    const, kind, stars, name, length = match.groups()
    return Variable(name, Type(kind, stars.count("*"), bool(const)), length)


def apart(text, mark=","):
    """Returns the parts of a list, whose parts may have brackets."""
    depth, part = 0, ""
    for letter in text + mark:
        depth += letter in "({"
        depth -= letter in ")}"
        if letter == mark and depth == 0:
            if part.strip():
                yield part.strip()
            part = ""
        else:
            part += letter
