//! A message as values, without sizes, byte orders and addresses. Python uses these; printed messages show them.

use std::fmt;

/// A message's values.
///
/// A value that only one pointer reaches is stored in place of the pointer. A value that is reached by several pointers, in
/// its middle, or by a pointer of its own type (lists, trees, graphs) is stored in `shared`, and pointers refer to it. So a
/// graph with cycles is a finite value, and nothing recurses deeper than the declaration.
#[derive(Clone, PartialEq, Debug)]
pub struct Graph {
    /// The message's struct, or a reference to it.
    pub root: Value,
    /// Arrays of values that references point to.
    pub shared: Vec<Vec<Value>>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// An integer of any type.
    Integer(i128),
    /// A float or double.
    Float(f64),
    Bool(bool),
    /// An enum's constant, by name.
    Constant(String),
    /// A struct, by field.
    Struct(Vec<(String, Value)>),
    /// A fixed, counted or dynamic array.
    List(Vec<Value>),
    /// The first elements of an array that has more, if only the first were requested.
    Truncated {
        /// Name of the elements' type.
        element: String,
        /// Number of elements in each dimension.
        shape: Vec<u64>,
        /// The first elements.
        values: Vec<Value>,
    },
    /// An array of characters.
    Bytes(Vec<u8>),
    /// A string, if it is UTF-8; otherwise it is `Bytes`.
    Text(String),
    /// A null pointer, or an empty union.
    Null,
    /// The target of a pointer to one value.
    Pointee(Box<Value>),
    /// A pointer to a shared value.
    Reference {
        /// Index into [`Graph::shared`].
        shared: usize,
        /// Index of the element.
        index: u64,
    },
    /// A union: the case, and its content.
    Case(String, Box<Value>),
}

impl Graph {
    /// Creates a message without shared values.
    pub fn tree(root: Value) -> Graph {
        Graph { root, shared: Vec::new() }
    }

    /// Returns the struct of the message.
    pub fn root(&self) -> Option<&Value> {
        match &self.root {
            Value::Reference { shared, index } => self.shared.get(*shared)?.get(usize::try_from(*index).ok()?),
            root => Some(root),
        }
    }
}

impl Value {
    pub fn field(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Struct(fields) => fields.iter().find(|(own, _)| own == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns a word for its kind, for error messages.
    pub(super) fn kind(&self) -> String {
        match self {
            Value::Integer(number) => format!("the integer {number}"),
            Value::Float(number) => format!("the number {number}"),
            Value::Bool(truth) => format!("{truth}"),
            Value::Constant(name) => format!("the constant '{name}'"),
            Value::Struct(fields) => format!("a struct of {} fields", fields.len()),
            Value::List(values) => format!("a list of {} elements", values.len()),
            Value::Truncated { element, shape, .. } => format!("a part of {element}{shape:?}"),
            Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Value::Text(text) => format!("a string of {} bytes", text.len()),
            Value::Null => "null".to_string(),
            Value::Pointee(_) => "a pointer".to_string(),
            Value::Reference { .. } => "a reference".to_string(),
            Value::Case(name, _) => format!("the case '{name}'"),
        }
    }
}

/// Maximum number of elements of a list that are shown.
const SHOWN_MAX: usize = 64;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(number) => write!(f, "{number}"),
            Value::Float(number) => write!(f, "{number:?}"),
            Value::Bool(truth) => write!(f, "{truth}"),
            Value::Constant(name) => f.write_str(name),
            Value::Struct(fields) => {
                f.write_str("{")?;
                for (number, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}: {value}", if number == 0 { "" } else { ", " })?;
                }
                f.write_str("}")
            }
            Value::List(values) => write_list(f, values),
            Value::Truncated { element, shape, values } => {
                write!(f, "{element}{shape:?} [")?;
                values.iter().try_for_each(|value| write!(f, "{value}, "))?;
                f.write_str("…]")
            }
            Value::Bytes(bytes) => write!(f, "b\"{}\"", bytes.escape_ascii()),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Null => f.write_str("null"),
            Value::Pointee(value) => write!(f, "&{value}"),
            Value::Reference { shared, index: 0 } => write!(f, "#{shared}"),
            Value::Reference { shared, index } => write!(f, "#{shared}[{index}]"),
            Value::Case(name, value) => write!(f, "{name}({value})"),
        }
    }
}

fn write_list(f: &mut fmt::Formatter<'_>, values: &[Value]) -> fmt::Result {
    f.write_str("[")?;
    for (number, value) in values.iter().take(SHOWN_MAX).enumerate() {
        write!(f, "{}{value}", if number == 0 { "" } else { ", " })?;
    }
    match values.len().checked_sub(SHOWN_MAX) {
        Some(more @ 1..) => write!(f, ", … {more} more]"),
        _ => f.write_str("]"),
    }
}

impl fmt::Display for Graph {
    /// Prints the message, and each referenced `#n` on a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.root)?;
        for (number, values) in self.shared.iter().enumerate() {
            write!(f, "\n#{number}: ")?;
            match values.as_slice() {
                [value] => write!(f, "{value}")?,
                values => write_list(f, values)?,
            }
        }
        Ok(())
    }
}
