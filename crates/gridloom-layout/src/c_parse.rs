//! Parses C declarations with annotations into message types.
//!
//! ```text
//! enum Kind { CIRCLE, POLYGON = 4 };
//! struct Point { double x, y; };
//! struct Polygon { size_t count; struct Point *points GRIDLOOM_LENGTH(count); };
//! union Body { double radius GRIDLOOM_CASE(CIRCLE); struct Polygon polygon GRIDLOOM_CASE(POLYGON); };
//! struct Shape { enum Kind kind; union Body body GRIDLOOM_TAG(kind); char *name; struct Shape *next; };
//! ```
//!
//! | annotation | on | meaning |
//! |---|---|---|
//! | `GRIDLOOM_LENGTH(expression)` | a pointer | number of elements; the expression is over the struct's integer fields, with `^` for powers |
//! | `GRIDLOOM_ONE` | a pointer to `char` or a number | one element (a `char *` without it: a string that ends with a NUL) |
//! | `GRIDLOOM_TAG(field)` | a union | the field of the same struct that selects the case |
//! | `GRIDLOOM_CASE(constant)` | a union's member | the tag of that case; with any other tag the union is empty |
//! | `GRIDLOOM_PACKED` | after `struct` | without padding |
//! | `GRIDLOOM_ARRAY(type)` | as a type | a dynamic array: `struct { type *data; size_t length, capacity; }` |
//!
//! A pointer without annotation points to one value, or is null. For the C compiler the annotations are macros, in
//! `include/gridloom_layout.h`. Supported: structs, unions and enums, with and without names, also nested;
//! typedefs, forward declarations and several names in one declaration; fixed arrays of constant size, `const`, comments.
//! Lines that begin with `#` are skipped. Rejected with the remedy: bit-fields, `void *`, functions, `long double`, arrays
//! without a size.

use std::collections::BTreeMap;

use super::schema::{Schema, SchemaError, check_all};
use super::types::{Case, Declaration, Enum, Extent, Field, Struct, Type, Union};
use gridloom_base::limits::{LAYOUT_DECLARATIONS_MAX, LAYOUT_TEXT_BYTES_MAX, LAYOUT_TYPE_DEPTH_MAX};
use gridloom_base::near::{did_you_mean, near_names};
use gridloom_idl::parse::lexer::{Lexer, Position, Token};
use gridloom_idl::{Expr, IdlError, parse_expression};

/// The declarations of a C text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Declarations {
    declarations: Vec<Declaration>,
    /// Structs by name and by typedef.
    structs: BTreeMap<String, usize>,
    unannotated: Vec<UnannotatedPointer>,
}

/// A pointer to numbers whose count is not stated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnannotatedPointer {
    /// `struct.field`.
    pub field: String,
    /// Its line in the text.
    pub line: usize,
}

impl Declarations {
    /// Fields that are pointers to numbers, without `GRIDLOOM_LENGTH` and `GRIDLOOM_ONE`. They are taken to point to one.
    pub fn unannotated(&self) -> &[UnannotatedPointer] {
        &self.unannotated
    }

    /// Returns the message type of that name, a struct or a typedef of one.
    ///
    /// # Errors
    /// If there is none.
    pub fn schema(&self, name: &str) -> Result<Schema, SchemaError> {
        match self.structs.get(name) {
            Some(index) => Schema::new(&self.declarations, *index),
            None => {
                let near = near_names(name, self.names());
                let why = format!("no struct of this name is declared{}", did_you_mean(&near));
                Err(SchemaError { name: name.to_string(), why })
            }
        }
    }

    /// Names of all structs and their typedefs, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.structs.keys().map(String::as_str)
    }
}

/// Parses the declarations of a C text. `file_name` names the text in errors.
///
/// # Errors
/// The first mistake, with its position and the remedy.
pub fn parse(source: &str, file_name: &str) -> Result<Declarations, IdlError> {
    let mut parser = Parser::new(source, file_name);
    if source.len() > LAYOUT_TEXT_BYTES_MAX {
        let message = format!("a text of {} bytes, at most {LAYOUT_TEXT_BYTES_MAX} are allowed", source.len());
        return Err(parser.error(Position { line: 1, column: 1 }, message));
    }
    parser.file()?;
    parser.finish()
}

/// The declaration of a tag, possibly not seen yet.
pub(super) struct Entry {
    pub(super) declaration: Option<Declaration>,
    pub(super) place: Position,
    pub(super) name: String,
}

pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    file: &'a str,
    pub(super) entries: Vec<Entry>,
    /// `struct X`, `union X`, `enum X`.
    pub(super) tags: BTreeMap<String, usize>,
    pub(super) typedefs: BTreeMap<String, Type>,
    pub(super) constants: BTreeMap<String, i64>,
    pub(super) nesting: usize,
    unannotated: Vec<UnannotatedPointer>,
}

/// A field whose annotations are resolved when all fields are known.
struct PendingField {
    field: Field,
    place: Position,
    length: Option<(String, Position)>,
    tag: Option<(String, Position)>,
    is_one: bool,
}

impl<'a> Parser<'a> {
    fn new(source: &'a str, file: &'a str) -> Parser<'a> {
        Parser {
            lexer: Lexer::new(source),
            file,
            entries: Vec::new(),
            tags: BTreeMap::new(),
            typedefs: BTreeMap::new(),
            constants: BTreeMap::new(),
            nesting: 0,
            unannotated: Vec::new(),
        }
    }

    fn file(&mut self) -> Result<(), IdlError> {
        loop {
            let (token, place) = self.peek()?;
            match &token {
                Token::End => return Ok(()),
                Token::Mark(";") => {
                    self.next()?;
                }
                Token::Name(word) if word == "typedef" => {
                    self.next()?;
                    let (base, _) = self.base("")?;
                    let (name, ty, _) = self.declarator(base)?;
                    // An unnamed struct takes the name of its typedef.
                    if let Type::Named(index) = &ty
                        && self.entries[*index].name.is_empty()
                    {
                        self.rename(*index, &name);
                    }
                    self.typedefs.insert(name, ty);
                    self.mark(";")?;
                }
                Token::Name(word) if ["struct", "union", "enum"].contains(&word.as_str()) => {
                    self.base("")?;
                    let (token, place) = self.next()?;
                    if token != Token::Mark(";") {
                        return Err(self.expected(
                            "';' after the declaration: messages have no variables",
                            &token,
                            place,
                        ));
                    }
                }
                other => return Err(self.expected("struct, union, enum or typedef", other, place)),
            }
        }
    }

    fn finish(self) -> Result<Declarations, IdlError> {
        let missing = self.entries.iter().find(|entry| entry.declaration.is_none());
        if let Some(entry) = missing {
            let message = format!("'{}' is used and nowhere declared; declare it in this text", entry.name);
            return Err(self.error(entry.place, message));
        }
        if self.entries.len() > LAYOUT_DECLARATIONS_MAX {
            let message = format!("more than {LAYOUT_DECLARATIONS_MAX} structs, unions and enums");
            return Err(self.error(self.entries[LAYOUT_DECLARATIONS_MAX].place, message));
        }
        let places: BTreeMap<String, Position> =
            self.entries.iter().map(|entry| (entry.name.clone(), entry.place)).collect();
        let file = self.file.to_string();
        let mut found = Declarations { unannotated: self.unannotated, ..Declarations::default() };
        for (index, entry) in self.entries.into_iter().enumerate() {
            let declaration = match entry.declaration.expect("just checked") {
                // Used only for its constants.
                Declaration::Enum(declared) if declared.name.is_empty() => {
                    Declaration::Enum(Enum { name: format!("unnamed_{index}"), ..declared })
                }
                declaration => declaration,
            };
            if let Declaration::Struct(Struct { dynamic: false, .. }) = &declaration {
                found.structs.insert(entry.name, index);
            }
            found.declarations.push(declaration);
        }
        for (name, ty) in self.typedefs {
            if let Type::Named(index) = ty
                && matches!(found.declarations[index], Declaration::Struct(_))
            {
                found.structs.entry(name).or_insert(index);
            }
        }
        check_all(&found.declarations).map_err(|error| {
            let place = places.get(&error.name).copied().unwrap_or(Position { line: 1, column: 1 });
            IdlError { file, line: place.line, column: place.column, message: error.to_string() }
        })?;
        Ok(found)
    }

    fn rename(&mut self, index: usize, name: &str) {
        let entry = &mut self.entries[index];
        entry.name = name.to_string();
        match entry.declaration.as_mut() {
            Some(Declaration::Struct(declared)) => declared.name = name.to_string(),
            Some(Declaration::Union(declared)) => declared.name = name.to_string(),
            Some(Declaration::Enum(declared)) => declared.name = name.to_string(),
            None => {}
        }
    }

    /// Parses the declaration of a tag; `member` names a declaration without a name.
    pub(super) fn tagged(&mut self, keyword: &str, member: &str) -> Result<usize, IdlError> {
        let mut packed = false;
        let (mut token, mut place) = self.peek()?;
        if keyword == "struct" && token == Token::Name("GRIDLOOM_PACKED".into()) {
            packed = true;
            self.next()?;
            (token, place) = self.peek()?;
        }
        let name = match token {
            Token::Name(name) => {
                self.next()?;
                name
            }
            _ => member.to_string(),
        };
        if keyword != "enum" && name.starts_with('_') && member == name {
            return Err(self.error(place, format!("give this {keyword} a name, since the struct around it has none")));
        }
        let key = format!("{keyword} {name}");
        let known = if name.is_empty() { None } else { self.tags.get(&key).copied() };
        let index = known.unwrap_or_else(|| {
            self.entries.push(Entry { declaration: None, place, name: name.clone() });
            self.entries.len() - 1
        });
        if !name.is_empty() {
            self.tags.insert(key.clone(), index);
        }
        if self.peek()?.0 != Token::Mark("{") {
            return Ok(index);
        }
        self.next()?;
        if self.entries[index].declaration.is_some() {
            return Err(self.error(place, format!("'{key}' is declared twice; keep one of the two")));
        }
        self.nesting += 1;
        if self.nesting > LAYOUT_TYPE_DEPTH_MAX {
            return Err(self.error(place, format!("nested deeper than {LAYOUT_TYPE_DEPTH_MAX} levels; use names")));
        }
        let declaration = match keyword {
            "struct" => Declaration::Struct(Struct { fields: self.fields(&name)?, name, packed, dynamic: false }),
            "union" => Declaration::Union(Union { cases: self.cases(&name)?, name }),
            _ => Declaration::Enum(Enum { constants: self.enumerators()?, name }),
        };
        self.nesting -= 1;
        self.entries[index].declaration = Some(declaration);
        self.entries[index].place = place;
        Ok(index)
    }

    fn fields(&mut self, of: &str) -> Result<Vec<Field>, IdlError> {
        let mut waiting: Vec<PendingField> = Vec::new();
        while self.peek()?.0 != Token::Mark("}") {
            let (base, _) = self.base(&format!("{of}_{}", waiting.len()))?;
            loop {
                let (name, ty, place) = self.declarator(base.clone())?;
                let field = Field::new(&name, ty);
                let mut made = PendingField { field, place, length: None, tag: None, is_one: false };
                self.field_annotations(&mut made)?;
                if made.length.is_none() && !made.is_one && made.field.ty.leads_to_number() {
                    let field = format!("{of}.{}", made.field.name);
                    self.unannotated.push(UnannotatedPointer { field, line: place.line });
                }
                waiting.push(made);
                let (token, place) = self.next()?;
                match token {
                    Token::Mark(",") => {}
                    Token::Mark(";") => break,
                    Token::Mark(":") => {
                        return Err(self
                            .error(place, "bit-fields are laid out differently on each machine; use whole integers"));
                    }
                    other => return Err(self.expected("',' or ';' or an annotation after the field", &other, place)),
                }
            }
        }
        self.next()?;
        let names: Vec<String> = waiting.iter().map(|made| made.field.name.clone()).collect();
        waiting.into_iter().map(|made| self.resolved(made, &names)).collect()
    }

    fn field_annotations(&mut self, made: &mut PendingField) -> Result<(), IdlError> {
        loop {
            let (token, place) = self.peek()?;
            let Token::Name(word) = &token else { return Ok(()) };
            match word.as_str() {
                "GRIDLOOM_LENGTH" => {
                    self.next()?;
                    made.length = Some(self.parenthesised()?);
                }
                "GRIDLOOM_TAG" => {
                    self.next()?;
                    made.tag = Some(self.parenthesised()?);
                }
                "GRIDLOOM_ONE" => {
                    self.next()?;
                    made.is_one = true;
                    if !made.field.ty.leads_to_number() && !made.field.ty.make_one_character() {
                        let why = "GRIDLOOM_ONE is for pointers to char and to numbers; other pointers point to one element anyway";
                        return Err(self.error(place, why));
                    }
                }
                _ => {
                    let known = ["GRIDLOOM_LENGTH", "GRIDLOOM_TAG", "GRIDLOOM_ONE"];
                    let near = did_you_mean(&near_names(word, known.into_iter()));
                    let message = format!("expected ',' or ';' or an annotation after the field, got '{word}'{near}");
                    return Err(self.error(place, message));
                }
            }
        }
    }

    fn resolved(&self, made: PendingField, names: &[String]) -> Result<Field, IdlError> {
        let PendingField { mut field, place, length, tag, is_one: _ } = made;
        if let Some((text, at)) = length {
            let Type::Pointer(pointer) = &mut field.ty else {
                let message =
                    format!("field '{}' has a length but is not a pointer; leave GRIDLOOM_LENGTH out", field.name);
                return Err(self.error(place, message));
            };
            pointer.extent = Extent::Count(self.expression(&text, at, names)?);
        }
        if let Some((text, at)) = tag {
            let tag = text.trim();
            field.tag = match names.iter().position(|name| name == tag) {
                Some(index) => Some(index),
                None => {
                    let near = did_you_mean(&near_names(tag, names.iter().map(String::as_str)));
                    return Err(self.error(at, format!("'{tag}' is not a field of this struct{near}")));
                }
            };
        }
        Ok(field)
    }

    fn cases(&mut self, of: &str) -> Result<Vec<Case>, IdlError> {
        let mut cases = Vec::new();
        while self.peek()?.0 != Token::Mark("}") {
            let (base, _) = self.base(&format!("{of}_{}", cases.len()))?;
            let (name, mut ty, place) = self.declarator(base)?;
            if self.peek()?.0 == Token::Name("GRIDLOOM_ONE".into()) {
                self.next()?;
                ty.make_one_character();
            }
            let (token, at) = self.next()?;
            if token != Token::Name("GRIDLOOM_CASE".into()) {
                let message = format!("member '{name}' needs GRIDLOOM_CASE(constant), the tag that selects it");
                return Err(self.error(if token == Token::End { place } else { at }, message));
            }
            let (text, at) = self.parenthesised()?;
            cases.push(Case { name, tag: self.constant(&text, at)?, ty });
            self.mark(";")?;
        }
        self.next()?;
        Ok(cases)
    }

    fn enumerators(&mut self) -> Result<Vec<(String, i64)>, IdlError> {
        let mut constants: Vec<(String, i64)> = Vec::new();
        let mut due = 0i64;
        loop {
            let (token, place) = self.next()?;
            let name = match token {
                Token::Mark("}") => return Ok(constants),
                Token::Name(name) => name,
                other => return Err(self.expected("a constant's name or '}'", &other, place)),
            };
            if self.peek()?.0 == Token::Mark("=") {
                self.next()?;
                let (text, at) = self.text_until(&[",", "}"])?;
                due = self.constant(&text, at)?;
            }
            if self.constants.insert(name.clone(), due).is_some() {
                return Err(self.error(place, format!("the constant '{name}' is declared twice; C knows it once")));
            }
            constants.push((name, due));
            due = due.saturating_add(1);
            let (token, place) = self.next()?;
            match token {
                Token::Mark(",") => {}
                Token::Mark("}") => return Ok(constants),
                other => return Err(self.expected("',' or '}' after the constant", &other, place)),
            }
        }
    }

    /// The value of an expression over the enum constants declared so far.
    pub(super) fn constant(&self, text: &str, place: Position) -> Result<i64, IdlError> {
        let names: Vec<String> = self.constants.keys().cloned().collect();
        let values: Vec<i64> = self.constants.values().copied().collect();
        let expr = self.expression(text, place, &names)?;
        let value = expr.evaluate_integer(&[], &|index| values.get(index).map(|value| i128::from(*value)));
        let value = value.map_err(|error| self.error(place, error.to_string()))?;
        i64::try_from(value).map_err(|_| self.error(place, format!("{value} does not fit 64 bits")))
    }

    fn expression(&self, text: &str, place: Position, names: &[String]) -> Result<Expr, IdlError> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        parse_expression(text, &names).map_err(|error| {
            let first = error.line == 1;
            let column = if first { place.column + error.column - 1 } else { error.column };
            let message = error.message.replace("parameter", "field");
            IdlError { file: self.file.to_string(), line: place.line + error.line - 1, column, message }
        })
    }

    pub(super) fn parenthesised(&mut self) -> Result<(String, Position), IdlError> {
        self.mark("(")?;
        let text = self.text_until(&[")"])?;
        self.mark(")")?;
        Ok(text)
    }

    /// Reads the text up to one of the marks outside parentheses; the mark is not consumed.
    pub(super) fn text_until(&mut self, ends: &[&str]) -> Result<(String, Position), IdlError> {
        let place = self.peek()?.1;
        let start = self.lexer.rest();
        let mut depth = 0usize;
        loop {
            let before = self.lexer.rest().len();
            let (token, at) = self.peek()?;
            match &token {
                Token::Mark(mark) if depth == 0 && ends.contains(mark) => {
                    // Blanks and comments before the first token do not belong to it, nor does their position.
                    let text = &start[..start.len() - before];
                    let skipped = self.blank_before(text);
                    return Ok((text[skipped..].to_string(), place));
                }
                Token::Mark("(") => depth += 1,
                Token::Mark(")") => depth = depth.saturating_sub(1),
                Token::End => return Err(self.expected(&format!("'{}'", ends[0]), &token, at)),
                _ => {}
            }
            self.next()?;
        }
    }

    /// Length in bytes of blanks and comments at the start of a text.
    fn blank_before(&self, text: &str) -> usize {
        let mut rest = text;
        loop {
            let trimmed = rest.trim_start();
            let after = match trimmed.get(..2) {
                Some("/*") => trimmed.find("*/").map(|end| &trimmed[end + 2..]),
                Some("//") => trimmed.find('\n').map(|end| &trimmed[end..]),
                _ => None,
            };
            let Some(after) = after else { return text.len() - trimmed.len() };
            rest = after;
        }
    }

    pub(super) fn peek(&self) -> Result<(Token, Position), IdlError> {
        let mut ahead = self.lexer;
        ahead.next().map_err(|(place, message)| self.error(place, message))
    }

    pub(super) fn next(&mut self) -> Result<(Token, Position), IdlError> {
        self.lexer.next().map_err(|(place, message)| self.error(place, message))
    }

    pub(super) fn mark(&mut self, mark: &str) -> Result<(), IdlError> {
        let (token, place) = self.next()?;
        if matches!(token, Token::Mark(found) if found == mark) {
            return Ok(());
        }
        Err(self.expected(&format!("'{mark}'"), &token, place))
    }

    pub(super) fn expected(&self, what: &str, token: &Token, place: Position) -> IdlError {
        self.error(place, format!("expected {what}, got {}", token.describe()))
    }

    pub(super) fn error(&self, place: Position, message: impl Into<String>) -> IdlError {
        IdlError { file: self.file.to_string(), line: place.line, column: place.column, message: message.into() }
    }
}
