//! Reads the attribute `#[message(…)]`.

use syn::{Attribute, DeriveInput, Error, Expr, LitStr, Path, Result};

#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) name: Option<LitStr>,
    pub(crate) c: Option<LitStr>,
    pub(crate) length: Option<(LitStr, Expr)>,
    pub(crate) path: Option<Path>,
}

impl Attributes {
    /// Reads the attributes; `allowed` are those that are valid there.
    pub(crate) fn read(attributes: &[Attribute], allowed: &[&str]) -> Result<Attributes> {
        let mut found = Attributes::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("message")) {
            attribute.parse_nested_meta(|meta| {
                let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                if !allowed.contains(&key.as_str()) {
                    return Err(meta.error(format!("expected one of {allowed:?} here")));
                }
                let text: LitStr = meta.value()?.parse()?;
                match key.as_str() {
                    "name" => {
                        let name = text.value();
                        let start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
                        if !start || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                            return Err(Error::new_spanned(&text, "expected a name of C: letters, digits and _"));
                        }
                        found.name = Some(text);
                    }
                    "c" => found.c = Some(text),
                    "length" => found.length = Some((text.clone(), text.parse()?)),
                    _ => found.path = Some(text.parse()?),
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Reads the attributes of the type itself, and the path of the crate of typed layouts.
    pub(crate) fn of_type(input: &DeriveInput) -> Result<(Attributes, Path)> {
        if !input.generics.params.is_empty() {
            return Err(Error::new_spanned(
                &input.generics,
                "a C declaration has no parameters; derive it for plain types",
            ));
        }
        let found = Attributes::read(&input.attrs, &["name", "crate"])?;
        let root = match &found.path {
            Some(path) => path.clone(),
            None => syn::parse_quote!(::gridloom::layout),
        };
        Ok((found, root))
    }
}

/// The name in C.
pub(crate) fn name_or(given: Option<&LitStr>, own: &impl ToString) -> String {
    let own = own.to_string();
    given.map_or_else(|| own.strip_prefix("r#").unwrap_or(&own).to_string(), LitStr::value)
}
