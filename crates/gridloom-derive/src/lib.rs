//! `#[derive(Message)]`: a Rust struct or enum as the corresponding C struct, with its layout on this machine
//! computed by the compiler. The correspondence is described in `gridloom_layout::rust`.
//!
//! Attributes, all optional:
//!
//! | attribute | on | meaning |
//! |---|---|---|
//! | `#[message(name = "…")]` | a type, field or variant | its name in C; a variant's constant if the enum has no data |
//! | `#[message(c = "unsigned long")]` | an integer or an array of them | C's type, of the same size on this machine |
//! | `#[message(length = "rows * columns")]` | a `Vec` | its length; `+ - * /`, integers and integer fields of the struct |
//! | `#[message(crate = "path")]` | a type | the path of `gridloom_layout`, if it is not `gridloom::layout` |

mod attributes;
mod enums;
mod fields;

use proc_macro::TokenStream;
use syn::{Data, DeriveInput, parse_macro_input};

/// Implements `Data`, and `Message` unless it is an enum without data.
#[proc_macro_derive(Message, attributes(message))]
pub fn derive_message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let made = match &input.data {
        Data::Struct(data) => fields::derive_struct(&input, data),
        Data::Enum(data) => enums::derive_enum(&input, data),
        Data::Union(_) => Err(syn::Error::new_spanned(&input.ident, "a Rust union has no tag; use an enum with data")),
    };
    made.unwrap_or_else(|error| error.to_compile_error()).into()
}
