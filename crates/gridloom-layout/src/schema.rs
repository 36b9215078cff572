//! A message type: a struct with all declarations that it needs, checked once and in canonical order, with its hash.
//!
//! **Invariants** of a [`Schema`], which later stages rely on:
//! - declaration 0 is the message's struct. Every declaration can be reached from it, in breadth-first order of first
//!   mention. So equal declarations give equal schemas, however they were built;
//! - names, fields and cases are unique; nothing is empty; a struct does not contain itself by value, and nesting by
//!   value is bounded;
//! - a counted pointer is a field of a struct, and its length uses integer fields of that struct only. A union is a field
//!   of a struct, and has an integer or enum field of that struct as its tag.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::types::{Declaration, Extent, Field, Integer, Struct, Type};
use gridloom_base::Dtype;
use gridloom_base::limits::{
    LAYOUT_DECLARATIONS_MAX, LAYOUT_MEMBERS_MAX, LAYOUT_TEXT_BYTES_MAX, LAYOUT_TYPE_DEPTH_MAX, NAME_BYTES_MAX,
};
use gridloom_idl::expr::Expr;
use gridloom_idl::{BaseType, Mode, signature::Param};

/// A checked message type.
#[derive(Clone, PartialEq, Debug)]
pub struct Schema {
    declarations: Vec<Declaration>,
    /// Declarations, each after those that it contains by value.
    by_value: Vec<usize>,
    /// Types of the blocks of memory that a message consists of: the root's, then those of pointers' targets.
    targets: Vec<Type>,
    hash: u64,
}

/// A mistake in a message type.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("type '{name}': {why}")]
pub struct SchemaError {
    pub name: String,
    /// The mistake and the remedy.
    pub why: String,
}

impl Schema {
    /// Creates the message type with the struct `root`, an index into `declarations`. Unneeded declarations are left out.
    ///
    /// # Errors
    /// If an invariant at the head of this file does not hold.
    pub fn new(declarations: &[Declaration], root: usize) -> Result<Schema, SchemaError> {
        Schema::numbered(declarations, root).map(|(schema, _)| schema)
    }

    /// Same as [`Schema::new`], with a map from old to new numbers of declarations.
    pub(super) fn numbered(
        declarations: &[Declaration],
        root: usize,
    ) -> Result<(Schema, BTreeMap<usize, usize>), SchemaError> {
        let (declarations, numbers) = canonical(declarations, root)?;
        let mut names = BTreeSet::new();
        for declaration in &declarations {
            check_declaration(declaration, &declarations)?;
            if !names.insert(declaration.name()) {
                return Err(wrong(declaration.name(), "it is declared twice, differently"));
            }
        }
        let by_value = order_by_value(&declarations)?;
        let targets = targets(&declarations);
        let mut schema = Schema { declarations, by_value, targets, hash: 0 };
        schema.hash = fnv(schema.to_string().as_bytes());
        Ok((schema, numbers))
    }

    pub fn name(&self) -> &str {
        self.declarations[0].name()
    }

    /// A hash of its text: names, types, order, lengths and tags, but nothing machine-dependent.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Its declarations; the first is its own struct.
    pub fn declarations(&self) -> &[Declaration] {
        &self.declarations
    }

    /// Its text, if it is short enough to be sent with a message.
    pub(super) fn description(&self) -> Option<String> {
        Some(self.to_string()).filter(|text| text.len() <= LAYOUT_TEXT_BYTES_MAX)
    }

    pub(super) fn by_value(&self) -> &[usize] {
        &self.by_value
    }

    pub(super) fn targets(&self) -> &[Type] {
        &self.targets
    }

    /// The number of a pointer's target type.
    pub(super) fn target_number(&self, ty: &Type) -> usize {
        self.targets.iter().position(|target| target == ty).expect("targets of all pointers were collected")
    }
}

/// Checks declarations before a message is chosen from them.
pub(super) fn check_all(declarations: &[Declaration]) -> Result<(), SchemaError> {
    declarations.iter().try_for_each(|declaration| check_declaration(declaration, declarations))?;
    order_by_value(declarations).map(|_| ())
}

/// Returns the fields of a struct as parameters of the expressions over them, for printing.
pub(super) fn params(fields: &[Field]) -> Vec<Param> {
    fields.iter().map(|field| Param::scalar(&field.name, Mode::In, BaseType::Number(Dtype::Int64))).collect()
}

fn wrong(name: &str, why: impl Into<String>) -> SchemaError {
    SchemaError { name: name.to_string(), why: why.into() }
}

/// Returns the declarations that `root` needs, with new numbers.
fn canonical(
    declarations: &[Declaration],
    root: usize,
) -> Result<(Vec<Declaration>, BTreeMap<usize, usize>), SchemaError> {
    if !matches!(declarations.get(root), Some(Declaration::Struct(_))) {
        let name = declarations.get(root).map_or("", Declaration::name);
        return Err(wrong(name, "a message is a struct; wrap this in one"));
    }
    let mut numbers = BTreeMap::from([(root, 0)]);
    let mut order = vec![root];
    let mut result = Vec::new();
    let mut at = 0;
    while at < order.len() {
        let mut declaration = declarations[order[at]].clone();
        let name = declaration.name().to_string();
        for ty in types_of_mut(&mut declaration) {
            renumber(ty, 0, &mut |old| {
                if old >= declarations.len() {
                    return Err(wrong(&name, format!("it uses declaration {old} of {}", declarations.len())));
                }
                let next = numbers.len();
                Ok(*numbers.entry(old).or_insert_with(|| {
                    order.push(old);
                    next
                }))
            })
            .map_err(|error| wrong(&name, error.why))?;
        }
        result.push(declaration);
        if order.len() > LAYOUT_DECLARATIONS_MAX {
            return Err(wrong(&name, format!("it is made of more than {LAYOUT_DECLARATIONS_MAX} declarations")));
        }
        at += 1;
    }
    Ok((result, numbers))
}

fn types_of_mut(declaration: &mut Declaration) -> Vec<&mut Type> {
    match declaration {
        Declaration::Struct(declared) => declared.fields.iter_mut().map(|field| &mut field.ty).collect(),
        Declaration::Union(declared) => declared.cases.iter_mut().map(|case| &mut case.ty).collect(),
        Declaration::Enum(_) => vec![],
    }
}

fn types_of(declaration: &Declaration) -> Vec<&Type> {
    match declaration {
        Declaration::Struct(declared) => declared.fields.iter().map(|field| &field.ty).collect(),
        Declaration::Union(declared) => declared.cases.iter().map(|case| &case.ty).collect(),
        Declaration::Enum(_) => vec![],
    }
}

/// Replaces the numbers of the declarations in a type.
pub(super) fn renumber(
    ty: &mut Type,
    depth: usize,
    number: &mut dyn FnMut(usize) -> Result<usize, SchemaError>,
) -> Result<(), SchemaError> {
    if depth > LAYOUT_TYPE_DEPTH_MAX {
        return Err(wrong("", format!("a type is nested deeper than {LAYOUT_TYPE_DEPTH_MAX} levels")));
    }
    match ty {
        Type::Integer(_) | Type::Float32 | Type::Float64 | Type::Bool => Ok(()),
        Type::Named(index) => {
            *index = number(*index)?;
            Ok(())
        }
        Type::Array(element, _) => renumber(element, depth + 1, number),
        Type::Pointer(pointer) => renumber(&mut pointer.target, depth + 1, number),
    }
}

fn check_declaration(declaration: &Declaration, all: &[Declaration]) -> Result<(), SchemaError> {
    let name = declaration.name();
    if !is_name(name) {
        return Err(wrong(name, "its name is not one of C: letters, digits and _, at most 255"));
    }
    let members: Vec<&str> = match declaration {
        Declaration::Struct(declared) => declared.fields.iter().map(|field| field.name.as_str()).collect(),
        Declaration::Union(declared) => declared.cases.iter().map(|case| case.name.as_str()).collect(),
        Declaration::Enum(declared) => declared.constants.iter().map(|(name, _)| name.as_str()).collect(),
    };
    if members.is_empty() || members.len() > LAYOUT_MEMBERS_MAX {
        return Err(wrong(name, format!("it has {} members; expected 1 to {LAYOUT_MEMBERS_MAX}", members.len())));
    }
    let mut seen = BTreeSet::new();
    for member in members {
        if !is_name(member) {
            return Err(wrong(name, format!("'{member}' is not a name of C: letters, digits and _, at most 255")));
        }
        if !seen.insert(member) {
            return Err(wrong(name, format!("'{member}' is in it twice")));
        }
    }
    match declaration {
        Declaration::Struct(declared) => check_struct(declared, all),
        Declaration::Union(declared) => {
            let mut tags = BTreeSet::new();
            for case in &declared.cases {
                if !tags.insert(case.tag) {
                    return Err(wrong(name, format!("two cases have the tag {}", case.tag)));
                }
                check_type(&case.ty, all)
                    .map_err(|why| wrong(name, format!("case '{}' {why}; put it into a struct", case.name)))?;
            }
            Ok(())
        }
        Declaration::Enum(declared) => {
            let outside = declared.constants.iter().find(|(_, value)| i32::try_from(*value).is_err());
            match outside {
                Some((constant, value)) => Err(wrong(name, format!("'{constant}' = {value} does not fit an int"))),
                None => Ok(()),
            }
        }
    }
}

fn check_struct(declared: &Struct, all: &[Declaration]) -> Result<(), SchemaError> {
    for field in &declared.fields {
        let wrong = |why: String| wrong(&declared.name, format!("field '{}' {why}", field.name));
        match (&field.ty, field.tag) {
            (Type::Named(index), tag) if matches!(all[*index], Declaration::Union(_)) => {
                let tag = tag.ok_or_else(|| wrong("is a union without a tag; add GRIDLOOM_TAG(field)".into()))?;
                let tag = declared.fields.get(tag).ok_or_else(|| wrong(format!("has field {tag} as its tag")))?;
                if !is_tag(&tag.ty, all) {
                    return Err(wrong(format!("has the tag '{}', which is neither an integer nor an enum", tag.name)));
                }
            }
            (_, Some(_)) => return Err(wrong("has a tag but is not a union".into())),
            (Type::Pointer(pointer), None) if matches!(pointer.extent, Extent::Count(_)) => {
                let Extent::Count(count) = &pointer.extent else { unreachable!("just matched") };
                check_count(count, declared).map_err(wrong)?;
                check_type(&pointer.target, all).map_err(|why| wrong(why.to_string()))?;
            }
            (ty, None) => check_type(ty, all).map_err(|why| wrong(why.to_string()))?,
        }
    }
    if declared.dynamic && !is_dynamic_array(declared) {
        return Err(wrong(&declared.name, "a dynamic array has the fields data, length and capacity"));
    }
    Ok(())
}

fn is_tag(ty: &Type, all: &[Declaration]) -> bool {
    match ty {
        Type::Integer(_) => true,
        Type::Named(index) => matches!(all[*index], Declaration::Enum(_)),
        _ => false,
    }
}

fn is_dynamic_array(declared: &Struct) -> bool {
    let size = Type::Integer(Integer::SizeT);
    let [data, length, capacity] = declared.fields.as_slice() else { return false };
    let counted = matches!(&data.ty, Type::Pointer(pointer) if pointer.extent == Extent::Count(Expr::Param(1)))
        && !declared.packed;
    let names = [data.name.as_str(), &length.name, &capacity.name];
    counted && names == ["data", "length", "capacity"] && length.ty == size && capacity.ty == size
}

fn check_count(count: &Expr, declared: &Struct) -> Result<(), String> {
    for index in count.params() {
        match declared.fields.get(index) {
            Some(Field { ty: Type::Integer(_), .. }) => {}
            Some(field) => return Err(format!("has a length that uses '{}', which is not an integer", field.name)),
            None => return Err(format!("has a length that uses field {index}, which does not exist")),
        }
    }
    Ok(())
}

/// Checks a type anywhere except directly in a struct.
fn check_type(ty: &Type, all: &[Declaration]) -> Result<(), &'static str> {
    match ty {
        Type::Integer(_) | Type::Float32 | Type::Float64 | Type::Bool => Ok(()),
        Type::Named(index) if matches!(all[*index], Declaration::Union(_)) => {
            Err("is a union where no field can be its tag")
        }
        Type::Named(_) => Ok(()),
        Type::Array(_, 0) => Err("is an array of no elements"),
        Type::Array(element, _) => check_type(element, all),
        Type::Pointer(pointer) => match pointer.extent {
            Extent::One => check_type(&pointer.target, all),
            Extent::Text if pointer.target == Type::Integer(Integer::Char) => Ok(()),
            Extent::Text => Err("is a string of something other than char"),
            Extent::Count(_) => Err("has a counted pointer inside its type, where no field can be its length"),
        },
    }
}

fn is_name(name: &str) -> bool {
    let start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    start && name.len() <= NAME_BYTES_MAX && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Returns a post-order of containment by value.
fn order_by_value(declarations: &[Declaration]) -> Result<Vec<usize>, SchemaError> {
    #[derive(Clone, Copy)]
    enum State {
        New,
        Open,
        Done(usize),
    }
    fn visit(
        index: usize,
        level: usize,
        all: &[Declaration],
        states: &mut [State],
        order: &mut Vec<usize>,
    ) -> Result<usize, SchemaError> {
        let name = all[index].name();
        match states[index] {
            State::Done(depth) if level + depth <= LAYOUT_TYPE_DEPTH_MAX => return Ok(depth),
            State::New if level <= LAYOUT_TYPE_DEPTH_MAX => {}
            State::Open => return Err(wrong(name, "it contains itself by value; use a pointer")),
            State::New | State::Done(_) => {
                return Err(wrong(
                    name,
                    format!("types are nested deeper than {LAYOUT_TYPE_DEPTH_MAX} levels by value"),
                ));
            }
        }
        states[index] = State::Open;
        let mut depth = 1;
        for mut ty in types_of(&all[index]) {
            let mut own = 1;
            while let Type::Array(element, _) = ty {
                ty = element;
                own += 1;
            }
            if let Type::Named(inner) = ty {
                own += visit(*inner, level + own, all, states, order)?;
            }
            depth = depth.max(own);
        }
        states[index] = State::Done(depth);
        order.push(index);
        Ok(depth)
    }
    let mut states = vec![State::New; declarations.len()];
    let mut order = Vec::new();
    for index in 0..declarations.len() {
        visit(index, 0, declarations, &mut states, &mut order)?;
    }
    Ok(order)
}

fn targets(declarations: &[Declaration]) -> Vec<Type> {
    let mut targets = vec![Type::Named(0)];
    for declaration in declarations {
        for mut ty in types_of(declaration) {
            loop {
                ty = match ty {
                    Type::Array(element, _) => element,
                    Type::Pointer(pointer) => {
                        if !targets.contains(&pointer.target) {
                            targets.push(pointer.target.clone());
                        }
                        &pointer.target
                    }
                    _ => break,
                };
            }
        }
    }
    targets
}

/// FNV-1a, which avoids accidental collisions only. An attacker gains nothing by a collision, since all memory of a message is
/// checked against the receiver's own schema.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
