"""Parameters of C functions in Fortran: one class for each form, chosen by the C type and the annotations."""

import fnmatch

import annotations
import declarations

#: Numbers by their C types; enumerations are c_int.
NUMBERS = {
    "int": "integer(c_int)",
    "long": "integer(c_long)",
    "size_t": "integer(c_size_t)",
    "uint64_t": "integer(c_int64_t)",
    "double": "real(c_double)",
}

#: Both names of the type.
STACKS = ("grpc_arg_stack_t", "ArgStack")


class Form:
    """A parameter."""

    #: The type that C gets, and the dummy argument of Fortran.
    c_type, type = "type(c_ptr), value", "type(c_ptr), intent(in)"
    #: Dimensions of both.
    c_shape, shape = "", ""
    #: Whether Fortran's argument differs from that of C.
    is_converted = True
    is_optional = False
    #: Whether only a function that is written by hand can have it.
    is_for_hand = False

    def __init__(self, c, name):
        self.c = c
        self.name = name
        #: The variable that is passed to C.
        self.local = f"{name}_of_c"

    def raw(self):
        return f"{self.c_type} :: {self.c}{self.c_shape}"

    def dummy(self):
        optional = ", optional" if self.is_optional else ""
        return f"{self.type}{optional} :: {self.name}{self.shape}"

    def locals(self):
        """Returns declarations."""
        return []

    def before(self):
        """Returns statements before the call; `after`: behind it."""
        return []

    def actual(self):
        return self.name

    def after(self):
        return []


class Same(Form):
    """The same in C and in Fortran."""

    is_converted = False

    def __init__(self, c, name, kind, intent):
        super().__init__(c, name)
        self.c_type = f"{kind}, {intent}"
        self.type = f"{kind}, {'intent(in)' if intent == 'value' else intent}"


class Result(Same):
    """A number that C returns."""

    def __init__(self, c, name, kind, initial):
        super().__init__(c, name, kind, "intent(inout)")
        self.type = f"{kind}, intent(out)"
        self.initial = initial

    def before(self):
        return [f"{self.name} = {self.initial}"]


class Integer(Form):
    """A default integer."""

    type = "integer, intent(in)"

    def __init__(self, c, name, kind):
        super().__init__(c, name)
        self.c_type, self.kind = f"{kind}, value", kind

    def actual(self):
        return f"int({self.name}, {self.kind[8:-1]})"


class IntegerResult(Form):
    type = "integer, intent(out)"

    def __init__(self, c, name, kind):
        super().__init__(c, name)
        self.c_type, self.kind = f"{kind}, intent(inout)", kind

    def locals(self):
        return [f"{self.kind} :: {self.local}"]

    def before(self):
        return [f"{self.local} = 0"]

    def actual(self):
        return self.local

    def after(self):
        return [f"{self.name} = int({self.local})"]


class Logical(Form):
    c_type, type = "integer(c_int), value", "logical, intent(in)"

    def actual(self):
        return f"merge(1_c_int, 0_c_int, {self.name})"


class Optional(Form):
    """A value that is 0 or null if it is left out."""

    is_optional = True

    def __init__(self, c, name, kind, c_kind, zero, value):
        super().__init__(c, name)
        self.c_type, self.type, self.kind, self.zero, self.value = f"{c_kind}, value", kind, c_kind, zero, value

    def locals(self):
        return [f"{self.kind} :: {self.local}"]

    def before(self):
        return [f"{self.local} = {self.zero}", f"if (present({self.name})) {self.local} = {self.value}"]

    def actual(self):
        return self.local


class Array(Form):
    """A contiguous array, whose length C gets, too."""

    c_shape, shape = "(*)", "(:)"

    def __init__(self, c, name, kind, intent):
        super().__init__(c, name)
        self.c_type, self.type = f"{kind}, {intent}", f"{kind}, {intent}, contiguous"

    def actual(self):
        return f"{self.name}, size({self.name}, kind=c_size_t)"


class Address(Form):
    """The address of something that has no form in Fortran."""

    is_for_hand = True


class Addresses(Form):
    """An array of addresses or numbers."""

    c_shape, is_for_hand = "(*)", True

    def __init__(self, c, name, kind):
        super().__init__(c, name)
        self.c_type = kind


class Text(Form):
    c_type, c_shape = "character(kind=c_char), intent(in)", "(*)"
    type = "character(len=*), intent(in)"

    def actual(self):
        return f"c_text({self.name})"


class OptionalText(Form):
    type, is_optional = "character(len=*), intent(in)", True

    def locals(self):
        return [f"character(kind=c_char, len=:), allocatable, target :: {self.local}"]

    def actual(self):
        return f"c_optional({self.name}, {self.local})"


class OptionalTexts(OptionalText):
    shape = "(:)"

    def locals(self):
        return [f"type(texts_of_c), target :: {self.local}"]

    def actual(self):
        return f"c_texts({self.name}, {self.local})"


class Buffer(Form):
    """Memory of a text, which becomes the function's result."""

    c_type, c_shape = "character(kind=c_char), intent(inout)", "(*)"

    def locals(self):
        return ["character(kind=c_char), allocatable :: letters(:)", "integer(c_int) :: length"]

    def actual(self):
        return "letters, size(letters, kind=c_size_t)"


class New(Form):
    """An object that C makes. It returns the address."""

    c_type = "type(c_ptr), intent(inout)"

    def locals(self):
        return [f"type(c_ptr) :: {self.local}"]

    def before(self):
        return [f"{self.local} = c_null_ptr"]

    def actual(self):
        return self.local


class NewText(New):
    """A text; "" on an error."""

    type = "character(len=:), allocatable, intent(out)"

    def after(self):
        return [f"{self.name} = taken_text({self.local})"]


class NewPointer(New):
    """A pointer to a variable of the program; null on an error."""

    def __init__(self, c, name, kind):
        super().__init__(c, name)
        self.type = f"{kind}, pointer, intent(out)"

    def before(self):
        return [*super().before(), f"nullify({self.name})"]

    def after(self):
        return [f"if (c_associated({self.local})) call c_f_pointer({self.local}, {self.name})"]


class NewRemote(New):
    type = "type(grpc_remote_t), intent(inout)"

    def after(self):
        return [f"if (c_associated({self.local})) call c_f_pointer({self.local}, {self.name}%value)"]


class Remote(Form):
    type = "type(grpc_remote_t), intent(in)"

    def actual(self):
        return f"pointer_of({self.name})"


class Memory(Form):
    """Memory of any type and rank."""

    def __init__(self, c, name, attributes):
        super().__init__(c, name)
        self.type = f"type(*), dimension(..), {attributes}"

    def actual(self):
        return f"c_loc({self.name})"


class OptionalMemory(Memory):
    is_optional = True

    def locals(self):
        return [f"type(c_ptr) :: {self.local}"]

    def before(self):
        return [f"{self.local} = c_null_ptr", f"if (present({self.name})) {self.local} = c_loc({self.name})"]

    def actual(self):
        return self.local


class Stack(Form):
    """The arguments of a call."""

    type = "type(grpc_arg_stack_t), intent(in), target"

    def locals(self):
        return [f"type(c_ptr) :: {self.local}"]

    def before(self):
        return [f"{self.local} = as_c({self.name})"]

    def actual(self):
        return self.local

    def after(self):
        return [f"call destruct({self.local})"]


class Forms:
    """Chooses the form of each parameter, with the types of all headers."""

    def __init__(self, c):
        self.c = c

    def number(self, kind):
        """Returns the Fortran type of a number, else None."""
        kind = self.c.resolved(kind)
        if kind.pointers:
            return None
        return NUMBERS["int"] if kind.name in self.c.enumerations else NUMBERS.get(kind.name)

    def structure(self, kind):
        """Returns the Fortran type of a structure, whatever pointers to it, else None."""
        name = self.c.resolved(declarations.Type(kind.name)).name
        if name not in self.c.structs or annotations.left_out(name) is not None:
            return None
        return f"type({annotations.c_name(name) if name in annotations.PARTS else name})"

    def of(self, function, parameter, has_length=False):
        """Returns the form of a parameter; with a length if the next one has its number of elements."""
        kind = parameter.type
        words = annotations.words(function.name, parameter.name)
        c, name = parameter.name, next((word[1:] for word in words if word.startswith("=")), parameter.name)
        is_optional = "optional" in words
        if kind.name == "function":
            return Same(c, name, "type(c_funptr)", "value")
        if kind.name in self.c.callbacks:
            procedure = f"procedure({kind.name})"
            return Optional(c, name, procedure, "type(c_funptr)", "c_null_funptr", f"c_funloc({name})")
        if kind.name in STACKS:
            return Stack(c, name)
        if kind.name == "grpc_remote_t":
            return NewRemote(c, name) if kind.pointers else Remote(c, name)
        if kind.name == "char":
            return self.of_text(c, name, kind, is_optional)
        if kind.name == "void":
            return self.of_memory(c, name, kind, words)
        if structure := self.structure(kind):
            return self.of_structure(function, c, name, kind, structure, words, has_length)
        number = self.number(declarations.Type(kind.name))
        if number is None:
            return Address(c, name)
        if kind.pointers:
            return self.of_numbers(c, name, kind, number, words, has_length)
        if c.startswith("is_"):
            return Logical(c, name)
        if "integer" in words:
            return Integer(c, name, number)
        return (
            Optional(c, name, f"{number}, intent(in)", number, "0", name)
            if is_optional
            else Same(c, name, number, "value")
        )

    def of_text(self, c, name, kind, is_optional):
        if kind.pointers == 2:
            return OptionalTexts(c, name) if kind.is_const else NewText(c, name)
        if not kind.is_const:
            return Buffer(c, name)
        return OptionalText(c, name) if is_optional else Text(c, name)

    def of_memory(self, c, name, kind, words):
        if kind.pointers == 2:
            return (
                Addresses(c, name, "type(c_ptr), intent(in)")
                if kind.is_const
                else Same(c, name, "type(c_ptr)", "intent(inout)")
            )
        if "number" in words:
            return Same(c, name, "integer(c_int)", "intent(in)")
        if "address" in words:
            return Optional(c, name, "type(c_ptr), intent(in)", "type(c_ptr)", "c_null_ptr", name)
        attributes = "target, asynchronous" if "kept" in words else "intent(in), target" if kind.is_const else "target"
        return (OptionalMemory if "optional" in words else Memory)(c, name, attributes)

    def of_structure(self, function, c, name, kind, structure, words, has_length):
        if "list" in words:
            return Addresses(c, name, "type(c_ptr), intent(in)")
        if kind.pointers == 2:
            return NewPointer(c, name, structure)
        makes = any(fnmatch.fnmatchcase(function.name, pattern) for pattern in annotations.MAKE_HANDLES)
        is_handle = kind.name in annotations.HANDLES
        is_read = kind.is_const or "in" in words or (is_handle and not makes)
        intent = "intent(in)" if is_read else "intent(inout)"
        if has_length:
            return Array(c, name, structure, intent)
        form = Same(c, name, structure, intent)
        is_call = function.is_variadic or any(other.type.name in STACKS for other in function.parameters)
        if kind.name in annotations.BY_ADDRESS or (is_handle and is_call):
            form.type += ", target"
        return form

    def of_numbers(self, c, name, kind, number, words, has_length):
        if "array" in words:
            return Addresses(c, name, f"{number}, intent(inout)")
        if has_length:
            return Array(c, name, number, "intent(in)" if kind.is_const else "intent(inout)")
        if kind.is_const:
            return Address(c, name)
        if "integer" in words:
            return IntegerResult(c, name, number)
        return Result(c, name, number, "GRPC_SESSIONID_VOID" if kind.name == "grpc_sessionid_t" else "0")
