//! Abstract types of messages: the content of a C declaration, independent of any machine's sizes and offsets.
//!
//! `char` is a character code, one byte that is sent unchanged; whether it is signed differs between machines. For a small
//! number use `int8_t` or `signed char`. An enum is stored as an `int`.
//!
//! These types are plain data and may be inconsistent; [`Schema::new`](super::Schema::new) checks them once.

use gridloom_idl::Expr;

/// Integer types of C. Those named after C's words have the machine's size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Integer {
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    /// A character code, 0 to 255.
    Char,
    Short,
    UnsignedShort,
    Int,
    UnsignedInt,
    Long,
    UnsignedLong,
    LongLong,
    UnsignedLongLong,
    SizeT,
}

impl Integer {
    /// All integer types, in declaration order.
    pub const ALL: [Integer; 18] = [
        Integer::Int8,
        Integer::Int16,
        Integer::Int32,
        Integer::Int64,
        Integer::Uint8,
        Integer::Uint16,
        Integer::Uint32,
        Integer::Uint64,
        Integer::Char,
        Integer::Short,
        Integer::UnsignedShort,
        Integer::Int,
        Integer::UnsignedInt,
        Integer::Long,
        Integer::UnsignedLong,
        Integer::LongLong,
        Integer::UnsignedLongLong,
        Integer::SizeT,
    ];

    /// C's name.
    pub const fn name(self) -> &'static str {
        match self {
            Integer::Int8 => "int8_t",
            Integer::Int16 => "int16_t",
            Integer::Int32 => "int32_t",
            Integer::Int64 => "int64_t",
            Integer::Uint8 => "uint8_t",
            Integer::Uint16 => "uint16_t",
            Integer::Uint32 => "uint32_t",
            Integer::Uint64 => "uint64_t",
            Integer::Char => "char",
            Integer::Short => "short",
            Integer::UnsignedShort => "unsigned short",
            Integer::Int => "int",
            Integer::UnsignedInt => "unsigned int",
            Integer::Long => "long",
            Integer::UnsignedLong => "unsigned long",
            Integer::LongLong => "long long",
            Integer::UnsignedLongLong => "unsigned long long",
            Integer::SizeT => "size_t",
        }
    }

    /// Returns the type of that C name, in the spelling of [`Integer::name`].
    pub fn from_name(name: &str) -> Option<Integer> {
        Integer::ALL.into_iter().find(|integer| integer.name() == name)
    }

    /// True if it holds negative numbers.
    pub const fn is_signed(self) -> bool {
        matches!(
            self,
            Integer::Int8
                | Integer::Int16
                | Integer::Int32
                | Integer::Int64
                | Integer::Short
                | Integer::Int
                | Integer::Long
                | Integer::LongLong
        )
    }
}

/// The type of a field, an element or a pointer's target.
#[derive(Clone, PartialEq, Debug)]
pub enum Type {
    Integer(Integer),
    /// `float`.
    Float32,
    /// `double`.
    Float64,
    /// `bool`, one byte that is 0 or 1.
    Bool,
    /// A struct, union or enum: an index into [`Schema::declarations`](super::Schema::declarations).
    Named(usize),
    /// A fixed number of elements, one after the other.
    Array(Box<Type>, u64),
    Pointer(Box<Pointer>),
}

/// A pointer's target.
#[derive(Clone, PartialEq, Debug)]
pub struct Pointer {
    /// The type of one element.
    pub target: Type,
    /// The number of elements.
    pub extent: Extent,
}

/// The number of elements that a pointer points to.
#[derive(Clone, PartialEq, Debug)]
pub enum Extent {
    /// One, or none if the pointer is null.
    One,
    /// The value of the expression, whose parameters are the fields of the struct that contains the pointer.
    /// With 0 elements the pointer is null.
    Count(Expr),
    /// Characters up to a NUL, or none if the pointer is null. The target is `char`.
    Text,
}

/// A declaration with a name.
#[derive(Clone, PartialEq, Debug)]
pub enum Declaration {
    /// Fields one after the other.
    Struct(Struct),
    /// One of several fields, at the same position.
    Union(Union),
    /// Named integers.
    Enum(Enum),
}

impl Declaration {
    pub fn name(&self) -> &str {
        match self {
            Declaration::Struct(declared) => &declared.name,
            Declaration::Union(declared) => &declared.name,
            Declaration::Enum(declared) => &declared.name,
        }
    }
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Struct {
    pub name: String,
    /// Its fields, in the order of memory.
    pub fields: Vec<Field>,
    /// True if there is no padding between and after the fields.
    pub packed: bool,
    /// True for a dynamic array: the fields are `T *data`, counted by `length`, `size_t length` and `size_t capacity`.
    /// In a message the capacity equals the length.
    pub dynamic: bool,
}

/// A field of a struct.
#[derive(Clone, PartialEq, Debug)]
pub struct Field {
    pub name: String,
    pub ty: Type,
    /// For a union: index of the field of the same struct that selects the case.
    pub tag: Option<usize>,
}

impl Field {
    /// Creates a field that is not a union.
    pub fn new(name: &str, ty: Type) -> Field {
        Field { name: name.to_string(), ty, tag: None }
    }
}

/// A tagged union. With a tag that belongs to no case, the union is empty.
#[derive(Clone, PartialEq, Debug)]
pub struct Union {
    pub name: String,
    /// The possible contents.
    pub cases: Vec<Case>,
}

/// A case of a union.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    pub name: String,
    /// The tag that selects it.
    pub tag: i64,
    /// The type of its content.
    pub ty: Type,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Enum {
    pub name: String,
    /// Its constants. Several may have the same value; then the first name is shown.
    pub constants: Vec<(String, i64)>,
}

impl Enum {
    /// Returns the first constant with that value.
    pub fn constant(&self, value: i64) -> Option<&str> {
        self.constants.iter().find(|(_, number)| *number == value).map(|(name, _)| name.as_str())
    }
}

impl Type {
    pub fn pointer_to(target: Type) -> Type {
        Type::Pointer(Box::new(Pointer { target, extent: Extent::One }))
    }

    /// A pointer to a counted array.
    pub fn counted(target: Type, count: Expr) -> Type {
        Type::Pointer(Box::new(Pointer { target, extent: Extent::Count(count) }))
    }

    /// A pointer to characters that end with a NUL.
    pub fn text() -> Type {
        Type::Pointer(Box::new(Pointer { target: Type::Integer(Integer::Char), extent: Extent::Text }))
    }

    pub fn array(element: Type, count: u64) -> Type {
        Type::Array(Box::new(element), count)
    }

    /// True if it is a pointer to one number, or an array of such.
    pub(super) fn leads_to_number(&self) -> bool {
        match self {
            Type::Array(element, _) => element.leads_to_number(),
            Type::Pointer(pointer) if pointer.extent == Extent::One => {
                matches!(pointer.target, Type::Integer(_) | Type::Float32 | Type::Float64 | Type::Bool)
            }
            _ => false,
        }
    }

    /// Turns the string inside it into a pointer to one character; returns whether there was one.
    pub(super) fn make_one_character(&mut self) -> bool {
        match self {
            Type::Array(element, _) => element.make_one_character(),
            Type::Pointer(pointer) if pointer.extent == Extent::Text => {
                pointer.extent = Extent::One;
                true
            }
            Type::Pointer(pointer) => pointer.target.make_one_character(),
            _ => false,
        }
    }
}
