//! The words that name types, in descriptions and in texts for people.

use gridloom_base::Dtype;

use crate::signature::BaseType;

/// Returns the type that these words name, in C's order or any other.
pub(crate) fn type_from_words(words: &[&str]) -> Option<BaseType> {
    let signs = words.iter().filter(|word| matches!(**word, "unsigned" | "signed")).count();
    let unsigned = words.contains(&"unsigned");
    let mut rest: Vec<&str> = words.iter().copied().filter(|word| !matches!(*word, "unsigned" | "signed")).collect();
    rest.sort_unstable();
    let (signed_type, unsigned_type) = match rest.as_slice() {
        ["char"] => (Dtype::Int8, Dtype::Uint8),
        ["short"] | ["int", "short"] => (Dtype::Int16, Dtype::Uint16),
        ["int"] => (Dtype::Int32, Dtype::Uint32),
        [] if signs > 0 => (Dtype::Int32, Dtype::Uint32),
        ["long"] | ["int", "long"] | ["long", "long"] | ["int", "long", "long"] => (Dtype::Int64, Dtype::Uint64),
        _ if signs > 0 => return None,
        ["string"] => return Some(BaseType::String),
        ["filename"] => return Some(BaseType::File),
        ["filepointer"] => return Some(BaseType::Stream),
        ["float"] => (Dtype::Float32, Dtype::Float32),
        ["double"] => (Dtype::Float64, Dtype::Float64),
        ["double", "long"] => (Dtype::LongDouble, Dtype::LongDouble),
        ["scomplex"] => (Dtype::Complex64, Dtype::Complex64),
        ["dcomplex"] => (Dtype::Complex128, Dtype::Complex128),
        [name] => return Dtype::from_name(name).map(BaseType::Number),
        _ => return None,
    };
    (signs <= 1).then_some(BaseType::Number(if unsigned { unsigned_type } else { signed_type }))
}

/// True if the word is part of a type's name.
pub(crate) fn is_type_word(word: &str) -> bool {
    const WORDS: [&str; 13] = [
        "unsigned",
        "signed",
        "char",
        "short",
        "int",
        "long",
        "float",
        "double",
        "string",
        "filename",
        "filepointer",
        "scomplex",
        "dcomplex",
    ];
    WORDS.contains(&word) || Dtype::from_name(word).is_some()
}

/// Returns the name of a type as the language's own texts write it.
pub(crate) fn type_name(base: BaseType) -> &'static str {
    match base {
        BaseType::Text | BaseType::String => "string",
        BaseType::Bytes => "bytes",
        BaseType::File => "filename",
        BaseType::Stream => "filepointer",
        BaseType::Number(Dtype::Int8) => "char",
        BaseType::Number(Dtype::Int16) => "short",
        BaseType::Number(Dtype::Int32) => "int",
        BaseType::Number(Dtype::Int64) => "long",
        BaseType::Number(Dtype::Float32) => "float",
        BaseType::Number(Dtype::Float64) => "double",
        BaseType::Number(Dtype::Complex64) => "scomplex",
        BaseType::Number(Dtype::Complex128) => "dcomplex",
        BaseType::Number(other) => other.name(),
    }
}

/// The types listed in messages.
pub(crate) const TYPES: &str = "char, short, int, long (also unsigned), float, double, string, filename, filepointer, \
                     scomplex, dcomplex, int8 to uint64, float16, bool";
