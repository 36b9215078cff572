"""Writes the part of the Fortran module that follows from C headers.

    fortran.py --out FOLDER --module FOLDER HEADER...

The folder of the module has the parts that are written by hand. Two files are added to it:

grpc_interfaces.f90  `grpc_types`: constants, types, and the functions of C that a Fortran program calls as they are;
                     `grpc_c`: interfaces of the other functions, whose names begin with c_, for the module itself
grpc_functions.f90   `grpc_functions`: functions with strings, arrays and other arguments of Fortran, which call those of `grpc_c`

A function that is written by hand, under its C name, is not written again. `annotations` adds to the C types of parameters, and lists
the functions that are left out. A function that cannot be written, and is neither written by hand nor left out, is an error.
"""

import argparse
import fnmatch
import pathlib
import re

import annotations
import declarations
import forms
from annotations import c_name

ARGUMENTS = [f"a{number}" for number in range(1, annotations.ARGUMENTS_MAX + 1)]
ANYTHING = f"type(*), dimension(..), optional, target, asynchronous :: {', '.join(ARGUMENTS)}"
WIDTH = 120


class Module:
    """The declarations of the headers, divided by how Fortran has them."""

    def __init__(self, headers, by_hand):
        self.c = declarations.Declarations()
        self.c.take_type(annotations.TIMEVAL)
        for name, text in headers:
            if name not in annotations.HEADERS_LEFT_OUT:
                self.c.add(name, text)
        self.forms = forms.Forms(self.c)
        code = re.sub(r"&\n\s*", "", re.sub(r"^\s*!.*", "", by_hand, flags=re.MULTILINE))
        #: Functions that are written by hand, and names of C functions in them.
        self.by_hand = set(re.findall(r"\b(?:function|subroutine|interface) (grpc_\w+)", code))
        called = set(re.findall(r"\bc_\w+", code))
        names = [name for name in self.c.functions if name not in self.c.internal | self.by_hand]
        names = [name for name in names if annotations.left_out(name) is None]
        #: Functions that a Fortran program calls as they are, and those in the form of Fortran.
        self.direct = [name for name in names if self.is_direct(self.function(name))]
        self.converted = [name for name in names if name not in self.direct]
        called |= {c_name(self.function(name).name) for name in self.converted}
        missing = [name for name in self.c.macros if name not in self.by_hand and annotations.left_out(name) is None]
        if missing:
            raise ValueError(f"{missing}: macros have to be written by hand, or listed as left out")
        #: Functions that the module calls.
        self.raw = [
            name for name, function in self.c.functions.items() if c_name(name) in called and not function.is_variadic
        ]

    def function(self, name):
        """Returns the function of C that a function of Fortran calls."""
        return self.c.functions[annotations.FUNCTIONS.get(name, name)]

    def is_direct(self, function):
        return (
            not function.is_variadic
            and not function.result.pointers
            and not any(form.is_converted for form in self.dummies(function))
        )

    def dummies(self, function):
        """Returns the forms of the parameters of a function of Fortran: sizes are part of the arrays before them."""
        made = [
            self.forms.of(function, parameter, has_size)
            for parameter, has_size, is_size in sized(function.parameters)
            if not is_size
        ]
        for form in made:
            if form.is_for_hand:
                raise ValueError(
                    f"{function.name}: '{form.c}' has no form in Fortran: annotate it, or write the function by hand"
                )
        return made

    # ---- Constants, types, and functions that are used as they are

    def interfaces(self):
        out = [MADE, "module grpc_types", "    use, intrinsic :: iso_c_binding", "    implicit none", "    private", ""]
        for name, value in self.c.constants.items():
            if annotations.left_out(name) is None:
                out.append(f"    integer(c_int), parameter, public :: {annotations.RENAMED.get(name, name)} = {value}")
        for struct in self.c.structs.values():
            out += self.type(struct.name, struct.fields) if self.is_whole(struct) else []
        for name, callback in self.c.callbacks.items():
            out += [
                "",
                f"    public :: {name}",
                "",
                "    abstract interface",
                *self.interface(name, callback, "bind(c)"),
            ]
            out += ["    end interface"]
        out += ["", *folded("    public :: ", self.direct), "", "    interface"]
        for name in self.direct:
            function = self.function(name)
            out += self.interface(name, function, "bind(c)" if function.name == name else bound(function.name))
        out += ["    end interface", "", "end module grpc_types", ""]
        out += ["! The other functions of C, for the modules that have them in the form of Fortran.", "module grpc_c"]
        out += ["    use, intrinsic :: iso_c_binding", "    use grpc_types", "    implicit none", "    private", ""]
        out += folded("    public :: ", [c_name(name) for name in self.raw])
        for name, fields in annotations.PARTS.items():
            out += self.type(c_name(name), [field for field in self.c.structs[name].fields if field.name in fields])
        out += ["", "    interface"]
        for name in self.raw:
            out += self.interface(c_name(name), self.c.functions[name], bound(name))
        return [*out, "    end interface", "", "end module grpc_c"]

    def interface(self, name, function, binding):
        kind = "subroutine"
        if function.result != declarations.Type("void"):
            kind = ("type(c_ptr)" if function.result.pointers else self.forms.number(function.result)) + " function"
        out = folded(f"        {kind} {name}(", [parameter.name for parameter in function.parameters], f") {binding}")
        out.append("            import")
        for parameter, has_size, _ in sized(function.parameters):
            out.append("            " + self.forms.of(function, parameter, has_size).raw())
        return [*out, f"        end {kind.split()[-1]}"]

    def is_whole(self, struct):
        return struct.name not in annotations.PARTS and annotations.left_out(struct.name) is None

    def type(self, name, fields):
        is_public = name not in self.c.structs or self.c.structs[name].is_named
        out = ["", f"    type, bind(c){', public' if is_public else ''} :: {name}"]
        if name in annotations.PRIVATE or all(field.name.endswith("_np") for field in fields):
            out.append("        private")
        return [*out, *(f"        {self.component(name, field)}" for field in fields), "    end type"]

    def component(self, struct, field):
        kind = self.c.resolved(field.type)
        if kind.pointers:
            return f"type(c_ptr) :: {field.name} = c_null_ptr"
        if kind.name == "char":
            return f"character(kind=c_char) :: {field.name}({field.length}) = c_null_char"
        if structure := self.forms.structure(kind):
            return f"{structure}{'' if self.c.structs[kind.name].is_named else ', private'} :: {field.name}"
        initial = self.c.enumerations.get(kind.name, 0)
        for pattern, value in annotations.VALUES.items():
            initial = value if fnmatch.fnmatchcase(f"{struct}.{field.name}", pattern) else initial
        return f"{self.forms.number(kind)} :: {field.name} = {initial}"

    # ---- Functions in the form of Fortran

    def functions(self):
        out = [MADE, "module grpc_functions", "    use, intrinsic :: iso_c_binding"]
        out += [f"    use {module}" for module in ("grpc_types", "grpc_c", *annotations.MODULES)]
        out += ["    implicit none", "    private", "", *folded("    public :: ", self.converted), "", "contains"]
        for name in self.converted:
            function = self.function(name)
            out += ["", *(self.variadic(function) if function.is_variadic else self.conversion(name, function))]
        return [*out, "", *self.arguments(), "", "end module grpc_functions"]

    def conversion(self, name, function):
        """Returns a function that converts its arguments, calls that of C, and converts the results."""
        made = self.dummies(function)
        buffer = next((form for form in made if isinstance(form, forms.Buffer)), None)
        stack = next((form for form in made if isinstance(form, forms.Stack)), None)
        is_text = buffer is not None or function.result.pointers > 0
        kind = "function" if is_text else f"{self.forms.number(function.result)} function"
        # Optional arguments come last.
        dummies = sorted((form for form in made if form is not buffer), key=lambda form: form.is_optional)
        call = f"{c_name(function.name)}({', '.join(form.actual() for form in made)})"
        out = folded(
            f"    {kind} {name}(", [form.name for form in dummies], f") result({'text' if is_text else 'code'})"
        )
        body = [form.dummy() for form in dummies]
        body += ["character(len=:), allocatable :: text"] if is_text else []
        body += [line for form in made for line in form.locals()]
        body += [line for form in made for line in form.before()]
        if buffer:
            body += written(call)
        elif is_text:
            body.append(f"text = fortran_text({call})")
        elif stack:
            body += ["code = -1", f"if (c_associated({stack.local})) code = {call}"]
            # On an error the function of C returns -1, unless it returns a code.
            if function.result.name == "grpc_error_t":
                body.append("if (code == -1) code = code_of(code)")
            elif "_async" not in name:
                body.append("code = code_of(code)")
        else:
            body.append(f"code = {call}")
        body += [line for form in made for line in form.after()]
        return [*out, *(part for line in body for part in wrapped(f"        {line}")), "    end function"]

    def variadic(self, function):
        """Returns a function that puts further arguments on a stack, and calls the function that takes one."""
        dummies = self.dummies(function)
        names = [form.name for form in dummies]
        head = f"    {self.forms.number(function.result)} function {function.name}("
        body = [form.dummy() for form in dummies]
        body += [ANYTHING, "type(grpc_arg_stack_t) :: stack", f"call take_all(stack, {', '.join(ARGUMENTS)})"]
        call = re.sub(r"^grpc_(call|invoke)", r"grpc_\1_arg_stack", function.name)
        call += f"({', '.join([name for name in names if name != 'session_id'] + ['stack'])})"
        if "session_id" in names:
            body += [f"session_id = {call}", "code = code_of(session_id)"]
        else:
            body.append(f"code = {call}")
        out = folded(head, names + ARGUMENTS, ") result(code)")
        return [*out, *(part for line in body for part in wrapped(f"        {line}")), "    end function"]

    def arguments(self):
        """Returns a subroutine that puts all arguments of a call on a stack."""
        out = folded("    subroutine take_all(", ["stack", *ARGUMENTS], ")")
        out += ["        type(grpc_arg_stack_t), intent(inout) :: stack", *wrapped(f"        {ANYTHING}")]
        out += [f"        call take(stack, {place}, {name})" for place, name in enumerate(ARGUMENTS, start=1)]
        return [*out, "    end subroutine"]


MADE = """! Made by crates/gridloom-capi/generate/fortran.py from the headers of C, with their names. `make capi` makes it again."""


def sized(parameters):
    """Returns each parameter, whether the next one is the number of its elements, and whether it is such a number itself."""
    sizes = [
        parameter.type.name == "size_t" and parameter.name in ("count", "length", "size") for parameter in parameters
    ]
    return zip(parameters, [*sizes[1:], False][: len(sizes)], sizes, strict=True)


def bound(name):
    return f'bind(c, name="{name}")'


def written(call):
    """Returns statements that make a text of the letters that a function of C writes, as snprintf does."""
    return [
        "allocate(letters(1))",
        f"length = max(0, {call})",
        "deallocate(letters)",
        "allocate(letters(length + 1))",
        "letters = c_null_char",
        f"if (length > 0) length = {call}",
        "allocate(character(len=length) :: text)",
        "text = transfer(letters(1:length), text)",
    ]


def folded(before, names, after=""):
    """Returns lines of a list."""
    return wrapped(f"{before}{', '.join(names)}{after}")


def wrapped(line):
    """Returns a line, in several ones if it is too long."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    lines = []
    while len(line) > WIDTH:
        at = max(line.rfind(", ", 0, WIDTH - 1) + 1, line.rfind(") ", 0, WIDTH - 1) + 1)
        lines.append(line[:at] + " &")
        line = indent + line[at:].strip()
    return [*lines, line]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--module", type=pathlib.Path, required=True)
    parser.add_argument("headers", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    by_hand = "".join(path.read_text() for path in sorted(options.module.glob("*.f90")))
    module = Module([(path.name, path.read_text()) for path in options.headers], by_hand)
    for name, lines in (("grpc_interfaces", module.interfaces()), ("grpc_functions", module.functions())):
        (options.out / f"{name}.f90").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
