//! Types in C declarations: the base before a name, and the declarator around it.

use super::c_parse::{Entry, Parser};
use super::types::{Declaration, Extent, Field, Integer, Struct, Type};
use gridloom_base::limits::LAYOUT_TYPE_DEPTH_MAX;
use gridloom_base::near::{did_you_mean, near_names};
use gridloom_idl::parse::lexer::{Position, Token};
use gridloom_idl::{Expr, IdlError};

/// A part of a declarator, outermost last.
enum Part {
    Pointer,
    Array(u64),
}

impl Parser<'_> {
    /// Parses the base of a declaration, and returns its position; `member` names an unnamed struct in it.
    pub(super) fn base(&mut self, member: &str) -> Result<(Type, Position), IdlError> {
        let place = self.peek()?.1;
        let mut words: Vec<String> = Vec::new();
        loop {
            let (token, at) = self.peek()?;
            let Token::Name(word) = &token else { break };
            match word.as_str() {
                "const" | "volatile" => {
                    self.next()?;
                }
                "struct" | "union" | "enum" if words.is_empty() => {
                    self.next()?;
                    return Ok((Type::Named(self.tagged(word, member)?), place));
                }
                "GRIDLOOM_ARRAY" if words.is_empty() => {
                    self.next()?;
                    return Ok((self.dynamic(at)?, place));
                }
                "unsigned" | "signed" | "short" | "long" | "int" | "char" | "float" | "double" => {
                    self.next()?;
                    words.push(word.clone());
                }
                word if words.is_empty() => {
                    self.next()?;
                    return Ok((self.named(word, at)?, place));
                }
                _ => break,
            }
        }
        if words.is_empty() {
            let (token, place) = self.peek()?;
            return Err(self.expected("a type", &token, place));
        }
        Ok((self.words(&mut words, place)?, place))
    }

    /// Resolves C's words for numbers, in any order.
    fn words(&self, words: &mut [String], place: Position) -> Result<Type, IdlError> {
        words.sort();
        let sorted: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "int").collect();
        let integer = match sorted.as_slice() {
            ["float"] => return Ok(Type::Float32),
            ["double"] => return Ok(Type::Float64),
            ["double", "long"] => {
                return Err(self.error(place, "long double differs between machines; use double"));
            }
            ["char"] => Integer::Char,
            ["char", "signed"] => Integer::Int8,
            ["char", "unsigned"] => Integer::Uint8,
            ["short"] | ["short", "signed"] => Integer::Short,
            ["short", "unsigned"] => Integer::UnsignedShort,
            [] | ["signed"] => Integer::Int,
            ["unsigned"] => Integer::UnsignedInt,
            ["long"] | ["long", "signed"] => Integer::Long,
            ["long", "unsigned"] => Integer::UnsignedLong,
            ["long", "long"] | ["long", "long", "signed"] => Integer::LongLong,
            ["long", "long", "unsigned"] => Integer::UnsignedLongLong,
            _ => return Err(self.error(place, format!("'{}' is not a C type", words.join(" ")))),
        };
        Ok(Type::Integer(integer))
    }

    fn named(&self, word: &str, place: Position) -> Result<Type, IdlError> {
        if let Some(integer) = Integer::from_name(word) {
            return Ok(Type::Integer(integer));
        }
        if let Some(ty) = self.typedefs.get(word) {
            return Ok(ty.clone());
        }
        if word == "bool" || word == "_Bool" {
            return Ok(Type::Bool);
        }
        if word == "void" {
            return Err(self.error(place, "void has no type to convert; declare the type that the pointer points to"));
        }
        if let Some(keyword) =
            ["struct", "union", "enum"].iter().find(|k| self.tags.contains_key(&format!("{k} {word}")))
        {
            return Err(self.error(place, format!("'{word}' is declared as a {keyword}; write '{keyword} {word}'")));
        }
        let known = Integer::ALL.iter().map(|integer| integer.name()).chain(["bool", "float", "double"]);
        let near = did_you_mean(&near_names(word, known.chain(self.typedefs.keys().map(String::as_str))));
        Err(self.error(place, format!("'{word}' is not a known type; declare it first{near}")))
    }

    /// Parses `GRIDLOOM_ARRAY(type)`.
    fn dynamic(&mut self, place: Position) -> Result<Type, IdlError> {
        self.mark("(")?;
        self.nesting += 1;
        if self.nesting > LAYOUT_TYPE_DEPTH_MAX {
            return Err(self.error(place, format!("nested deeper than {LAYOUT_TYPE_DEPTH_MAX} levels; use names")));
        }
        let (base, _) = self.base("")?;
        let (inner, target) = self.abstract_declarator(base)?;
        self.nesting -= 1;
        self.mark(")")?;
        let name = dynamic_name(&self.type_text(&target, inner));
        let key = format!("array {name}");
        if let Some(index) = self.tags.get(&key) {
            return Ok(Type::Named(*index));
        }
        let declaration = Some(Declaration::Struct(dynamic_struct(&name, target)));
        self.entries.push(Entry { declaration, place, name });
        self.tags.insert(key, self.entries.len() - 1);
        Ok(Type::Named(self.entries.len() - 1))
    }

    fn type_text(&self, ty: &Type, stars: usize) -> String {
        let mut ty = ty;
        while let Type::Pointer(pointer) = ty {
            ty = &pointer.target;
        }
        let base = match ty {
            Type::Integer(integer) => integer.name().to_string(),
            Type::Float32 => "float".to_string(),
            Type::Float64 => "double".to_string(),
            Type::Bool => "bool".to_string(),
            Type::Named(index) => self.entries[*index].name.clone(),
            Type::Array(..) | Type::Pointer(_) => "array".to_string(),
        };
        base + &"*".repeat(stars)
    }

    /// Parses stars without a name.
    fn abstract_declarator(&mut self, base: Type) -> Result<(usize, Type), IdlError> {
        let (mut stars, mut ty) = (0, base);
        while self.peek()?.0 == Token::Mark("*") {
            let place = self.next()?.1;
            stars += 1;
            if stars > LAYOUT_TYPE_DEPTH_MAX {
                return Err(
                    self.error(place, format!("more than {LAYOUT_TYPE_DEPTH_MAX} levels of pointers; use fewer"))
                );
            }
            ty = pointer(ty);
        }
        Ok((stars, ty))
    }

    /// Parses a name with stars and extents around it: the name, its type, and its position.
    pub(super) fn declarator(&mut self, base: Type) -> Result<(String, Type, Position), IdlError> {
        let mut parts = Vec::new();
        let (name, place) = self.declarator_parts(&mut parts, 0)?;
        let mut ty = base;
        for part in parts.into_iter().rev() {
            ty = match part {
                Part::Pointer => pointer(ty),
                Part::Array(count) => Type::array(ty, count),
            };
        }
        Ok((name, ty, place))
    }

    /// Parses the parts from the name outwards.
    fn declarator_parts(&mut self, parts: &mut Vec<Part>, depth: usize) -> Result<(String, Position), IdlError> {
        let mut stars = 0;
        while self.peek()?.0 == Token::Mark("*") {
            self.next()?;
            stars += 1;
            while matches!(&self.peek()?.0, Token::Name(word) if word == "const" || word == "restrict") {
                self.next()?;
            }
        }
        let (token, place) = self.next()?;
        if depth + stars + parts.len() > LAYOUT_TYPE_DEPTH_MAX {
            return Err(self.error(place, format!("a type is nested deeper than {LAYOUT_TYPE_DEPTH_MAX} levels")));
        }
        let named = match token {
            Token::Name(name) => (name, place),
            Token::Mark("(") => {
                let named = self.declarator_parts(parts, depth + 1)?;
                self.mark(")")?;
                named
            }
            other => return Err(self.expected("a field's name", &other, place)),
        };
        loop {
            let (token, place) = self.peek()?;
            match token {
                Token::Mark("[") => {
                    self.next()?;
                    let (text, at) = self.text_until(&["]"])?;
                    self.mark("]")?;
                    if text.trim().is_empty() {
                        return Err(self.error(place, "an array without a size; use a pointer with GRIDLOOM_LENGTH"));
                    }
                    let count = self.constant(&text, at)?;
                    let count = u64::try_from(count).ok().filter(|count| *count > 0);
                    let count = count.ok_or_else(|| self.error(at, "an array has at least one element"))?;
                    parts.push(Part::Array(count));
                    if parts.len() > LAYOUT_TYPE_DEPTH_MAX {
                        return Err(self.error(place, format!("more than {LAYOUT_TYPE_DEPTH_MAX} extents")));
                    }
                }
                Token::Mark("(") => {
                    return Err(self.error(place, "functions are not data; leave this field out of the message"));
                }
                _ => break,
            }
        }
        parts.extend((0..stars).map(|_| Part::Pointer));
        Ok(named)
    }
}

fn pointer(target: Type) -> Type {
    if target == Type::Integer(Integer::Char) { Type::text() } else { Type::pointer_to(target) }
}

fn dynamic_name(text: &str) -> String {
    let word: String = text
        .chars()
        .map(|c| match c {
            ' ' => '_',
            '*' => 'p',
            other => other,
        })
        .collect();
    format!("array_of_{word}")
}

/// Returns the struct that represents a dynamic array of these elements.
pub(super) fn dynamic_struct(name: &str, target: Type) -> Struct {
    Struct {
        name: name.to_string(),
        fields: vec![
            Field::new(
                "data",
                Type::Pointer(Box::new(super::types::Pointer { target, extent: Extent::Count(Expr::Param(1)) })),
            ),
            Field::new("length", Type::Integer(Integer::SizeT)),
            Field::new("capacity", Type::Integer(Integer::SizeT)),
        ],
        packed: false,
        dynamic: true,
    }
}
