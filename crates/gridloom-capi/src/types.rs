//! A program's message types: the name of each type, and its struct.
//!
//! All declarations are read as one text, with one line each, so that a declaration may use another. The line number
//! of an error is converted to the declaration's file and line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gridloom_base::near::{did_you_mean, near_names};
use gridloom_layout::types::Declaration;
use gridloom_layout::{Abi, Declarations, MemoryLayout, Receiver, Schema, SchemaError, UnannotatedPointer, parse};

use crate::code::Failure;
use crate::declare::Declared;

static TYPES: OnceLock<Types> = OnceLock::new();

/// Message types by name.
#[derive(Debug, Default)]
pub(crate) struct Types {
    kinds: BTreeMap<String, MessageType>,
}

/// A message type.
#[derive(Debug)]
pub(crate) struct MessageType {
    /// Encodes it for sending.
    pub(crate) form: MemoryLayout,
    /// Decodes it from any machine.
    pub(crate) receiver: Mutex<Receiver>,
    /// True if the program sees no data. When sent it has one field that is ignored, because a struct needs one.
    pub(crate) is_signal: bool,
}

impl Types {
    /// Reads the declarations of a program.
    pub(crate) fn new(declared: &[Declared]) -> Result<Types, String> {
        let declarations = read(declared)?;
        let mut kinds = BTreeMap::new();
        let mut carried: BTreeMap<&str, &Declared> = BTreeMap::new();
        for made in declared {
            let Some(kind) = &made.kind else { continue };
            if let Some(other) = carried.insert(kind, made) {
                if (&other.name, &other.text) != (&made.name, &made.text) {
                    let (file, line) = (&other.file, other.line);
                    return Err(at(made, format!("message type '{kind}' is declared differently in {file}:{line}")));
                }
                continue;
            }
            kinds.insert(kind.clone(), MessageType::new(kind, made, &declarations)?);
        }
        Ok(Types { kinds })
    }

    /// Returns the message type of that name, if it is declared.
    pub(crate) fn find(&self, kind: &str) -> Option<&MessageType> {
        self.kinds.get(kind)
    }

    /// Returns the message type of that name, or an error.
    pub(crate) fn get(&self, kind: &str) -> Result<&MessageType, Failure> {
        self.find(kind).ok_or_else(|| {
            let near = did_you_mean(&near_names(kind, self.kinds.keys().map(String::as_str)));
            let known: Vec<&str> = self.kinds.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
            Failure::usage(format!("message type '{kind}' is not declared{near}; declared are: {known}"))
        })
    }
}

impl MessageType {
    fn new(kind: &str, declared: &Declared, declarations: &Declarations) -> Result<MessageType, String> {
        let Some(name) = &declared.name else { return MessageType::signal(kind).map_err(|error| at(declared, error)) };
        let schema = declarations.schema(name).map_err(|error| at(declared, error.to_string()))?;
        let schema = renamed(&schema, kind).map_err(|error| at(declared, error.to_string()))?;
        let kind = MessageType::of(schema, false).map_err(|error| at(declared, error))?;
        let shape = kind.form.shape(0);
        if (shape.size, shape.align) != (declared.size as u64, declared.align as u64) {
            let Declared { size, align, .. } = declared;
            return Err(at(
                declared,
                format!(
                    "struct {name} has {size} bytes at multiples of {align} for the compiler, and {} at multiples of {} \
                     by its text; is an attribute or an option of the compiler (-fpack-struct, -fshort-enums) at work, or \
                     a #define in the text?",
                    shape.size, shape.align
                ),
            ));
        }
        Ok(kind)
    }

    fn signal(kind: &str) -> Result<MessageType, String> {
        let text = format!("struct {kind} {{ uint8_t unused; }};");
        let declarations = parse(&text, "signal").map_err(|error| error.message)?;
        MessageType::of(declarations.schema(kind).map_err(|error| error.to_string())?, true)
    }

    fn of(schema: Schema, is_signal: bool) -> Result<MessageType, String> {
        let receiver = Receiver::new(Arc::new(schema), Abi::NATIVE).map_err(|error| error.to_string())?;
        Ok(MessageType { form: receiver.form().clone(), receiver: Mutex::new(receiver), is_signal })
    }
}

/// Returns a message type's struct under the type's name, which programs in other languages use.
fn renamed(schema: &Schema, kind: &str) -> Result<Schema, SchemaError> {
    let mut declarations = schema.declarations().to_vec();
    if let Some(Declaration::Struct(declared)) = declarations.first_mut() {
        declared.name = kind.to_string();
    }
    Schema::new(&declarations, 0)
}

/// Returns the types of this program, once they are set.
pub(crate) fn types() -> &'static Types {
    TYPES.get_or_init(Types::default)
}

/// Sets the types; only the first call counts.
pub(crate) fn set_types(types: Types) {
    let _ = TYPES.set(types);
}

pub(crate) fn lock(receiver: &Mutex<Receiver>) -> MutexGuard<'_, Receiver> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner)
}

fn at(declared: &Declared, message: String) -> String {
    format!("{}:{}: {message}", declared.file, declared.line)
}

/// Parses all declarations, each text once.
fn read(declared: &[Declared]) -> Result<Declarations, String> {
    let mut lines: Vec<&Declared> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut source = String::new();
    for constants in [true, false] {
        for made in declared {
            let mut line = String::new();
            match (&made.kind, &made.name, &made.text) {
                (None, Some(constant), None) if constants => {
                    let _ = write!(line, "enum {{ {constant} = {} }};", made.value);
                }
                (_, _, Some(text)) if !constants => line = format!("{};", text.replace('\n', " ")),
                _ => continue,
            }
            if seen.insert(line.clone()) {
                source += &line;
                source += "\n";
                lines.push(made);
            }
        }
    }
    let declarations = parse(&source, "declarations").map_err(|error| {
        let Some(made) = lines.get(error.line - 1) else { return error.to_string() };
        let text = source.lines().nth(error.line - 1).unwrap_or_default();
        let before: String = text.chars().take(error.column - 1).collect();
        let rest: String = text.chars().skip(error.column - 1).take(30).collect();
        let from = before.char_indices().rev().nth(29).map_or(0, |(index, _)| index);
        let place = format!("{}>>>{rest}", &before[from..]);
        at(made, format!("{}, at '{place}'; constants of #define need GRIDLOOM_CONSTANT(name)", error.message))
    })?;
    match declarations.unannotated().first() {
        None => Ok(declarations),
        Some(UnannotatedPointer { field, line }) => {
            let why = format!(
                "'{field}' is a pointer to a number, without the number of elements; write GRIDLOOM_LENGTH(fields) \
                 after it for an array, or GRIDLOOM_ONE for one"
            );
            Err(lines.get(line - 1).map_or_else(|| why.clone(), |made| at(made, why.clone())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, text: &str, size: usize) -> Declared {
        let (name, text) = (Some(kind.to_string()), Some(text.to_string()));
        Declared { kind: name.clone(), name, text, file: "p.c".into(), line: 7, size, align: 4, value: 0 }
    }

    fn constant(name: &str, value: i64) -> Declared {
        Declared { name: Some(name.into()), value, file: "p.c".into(), line: 2, ..Declared::default() }
    }

    #[test]
    fn declarations_use_one_another_and_a_header_may_be_read_twice() {
        let pair = message("pair", "struct pair { struct one first; int rest[WIDTH]; }", 16);
        let one = message("one", "struct one { int n; }", 4);
        let kinds = Types::new(&[pair.clone(), one.clone(), constant("WIDTH", 3), one, pair]).unwrap().kinds;
        assert_eq!(kinds.into_keys().collect::<Vec<_>>(), ["one", "pair"]);
    }

    #[test]
    fn errors_report_where_and_what() {
        let wrong = |declared: &[Declared]| Types::new(declared).unwrap_err();
        let text = wrong(&[message("one", "struct one { int n[WIDTH]; }", 4)]);
        assert!(text.starts_with("p.c:7: "), "{text}");
        assert!(text.contains("WIDTH") && text.contains(">>>") && text.contains("GRIDLOOM_CONSTANT"), "{text}");
        let text = wrong(&[message("one", "struct one { int n; }", 8)]);
        assert!(text.contains("8 bytes") && text.contains("and 4 at multiples of 4"), "{text}");
        let text = wrong(&[message("one", "struct one { int n; double *x; }", 16)]);
        assert!(text.starts_with("p.c:7: 'one.x' is a pointer to a number") && text.contains("GRIDLOOM_ONE"), "{text}");
        let marked = "struct one { int n; double *x GRIDLOOM_LENGTH(n), *y GRIDLOOM_ONE; }";
        assert!(Types::new(&[Declared { align: 8, ..message("one", marked, 24) }]).is_ok());
        let other = Declared { name: Some("two".into()), text: None, ..message("one", "", 4) };
        let text = wrong(&[message("one", "struct one { int n; }; struct two { int n; }", 4), other]);
        assert!(text.contains("differently in p.c:7"), "{text}");
    }

    #[test]
    fn a_message_type_has_its_own_name_and_a_signal_one_field() {
        let stop = Declared { kind: Some("stop".into()), file: "p.c".into(), ..Declared::default() };
        let other = Declared { kind: Some("goal".into()), text: None, ..message("link", "", 8) };
        let other = Declared { align: 8, size: 8, ..other };
        let link = Declared { align: 8, ..message("link", "struct link { struct link *next; }", 8) };
        let types = Types::new(&[link, other, stop]).unwrap();
        let text = |kind: &str| types.get(kind).unwrap().form.schema().to_string();
        assert_eq!(text("goal"), "struct goal {\n    struct goal *next;\n};\n");
        assert_eq!(text("stop"), "struct stop {\n    uint8_t unused;\n};\n");
    }

    #[test]
    fn unknown_types_are_named_with_near_ones() {
        let types = Types::new(&[message("matrix", "struct matrix { int n; }", 4)]).unwrap();
        let text = types.get("matrx").unwrap_err().text;
        assert!(text.contains("did you mean 'matrix'") && text.contains("declared are: matrix"), "{text}");
    }
}
