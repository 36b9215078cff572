//! Prints a message type as the C declarations that [`parse`](super::c_parse::parse) reads. Its hash is over this text, and a
//! message that describes itself contains it. Each declaration follows those that it contains by value.

use std::fmt;

use super::schema::{Schema, params};
use super::types::{Declaration, Extent, Field, Integer, Type};

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.declarations();
        for index in self.by_value() {
            match &all[*index] {
                Declaration::Struct(declared) if declared.dynamic => {}
                Declaration::Struct(declared) => {
                    let packed = if declared.packed { "GRIDLOOM_PACKED " } else { "" };
                    writeln!(f, "struct {packed}{} {{", declared.name)?;
                    for field in &declared.fields {
                        writeln!(f, "    {};", field_text(field, &declared.fields, all))?;
                    }
                    writeln!(f, "}};")?;
                }
                Declaration::Union(declared) => {
                    writeln!(f, "union {} {{", declared.name)?;
                    for case in &declared.cases {
                        writeln!(f, "    {} GRIDLOOM_CASE({});", declarator(&case.ty, &case.name, all), case.tag)?;
                    }
                    writeln!(f, "}};")?;
                }
                Declaration::Enum(declared) => {
                    let constants: Vec<String> =
                        declared.constants.iter().map(|(name, value)| format!("{name} = {value}")).collect();
                    writeln!(f, "enum {} {{ {} }};", declared.name, constants.join(", "))?;
                }
            }
        }
        Ok(())
    }
}

/// A field with its annotation, without the semicolon.
pub(super) fn field_text(field: &Field, fields: &[Field], all: &[Declaration]) -> String {
    let mut text = declarator(&field.ty, &field.name, all);
    if let Some(tag) = field.tag {
        text += &format!(" GRIDLOOM_TAG({})", fields[tag].name);
    }
    if let Type::Pointer(pointer) = &field.ty
        && let Extent::Count(count) = &pointer.extent
    {
        text += &format!(" GRIDLOOM_LENGTH({})", count.display(&params(fields)));
    }
    text
}

/// A name with its type, in C's syntax.
pub(super) fn declarator(ty: &Type, name: &str, all: &[Declaration]) -> String {
    let mut inner = name.to_string();
    let mut suffix = "";
    let mut ty = ty;
    loop {
        ty = match ty {
            Type::Array(element, count) => {
                inner += &format!("[{count}]");
                element
            }
            Type::Pointer(pointer) => {
                let array = matches!(pointer.target, Type::Array(..));
                inner = if array { format!("(*{inner})") } else { format!("*{inner}") };
                if pointer.extent == Extent::One && pointer.target == Type::Integer(Integer::Char) {
                    suffix = " GRIDLOOM_ONE";
                }
                &pointer.target
            }
            _ => return format!("{} {inner}{suffix}", base(ty, all)),
        };
    }
}

fn base(ty: &Type, all: &[Declaration]) -> String {
    match ty {
        Type::Integer(integer) => integer.name().to_string(),
        Type::Float32 => "float".to_string(),
        Type::Float64 => "double".to_string(),
        Type::Bool => "bool".to_string(),
        Type::Named(index) => match &all[*index] {
            Declaration::Struct(declared) if declared.dynamic => {
                let Type::Pointer(data) = &declared.fields[0].ty else { unreachable!("checked with the schema") };
                format!("GRIDLOOM_ARRAY({})", declarator(&data.target, "", all).trim_end())
            }
            Declaration::Struct(declared) => format!("struct {}", declared.name),
            Declaration::Union(declared) => format!("union {}", declared.name),
            Declaration::Enum(declared) => format!("enum {}", declared.name),
        },
        Type::Array(..) | Type::Pointer(_) => unreachable!("the declarator went through these"),
    }
}
