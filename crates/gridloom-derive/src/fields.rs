//! Structs, and the fields of variants.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{
    BinOp, DataStruct, DeriveInput, Error, Expr, Fields, GenericArgument, Ident, Lit, Path, PathArguments, Result,
    Type, UnOp,
};

use crate::attributes::{Attributes, name_or};

/// A Rust field and its C counterpart.
struct Field {
    /// Its name as a local variable.
    local: Ident,
    /// Its name in the pattern or initializer: `name` or `0`.
    member: syn::Member,
    name: String,
    ty: Type,
    attributes: Attributes,
    /// The element type of a `Vec`.
    element: Option<Type>,
}

/// The C struct of some fields, as code.
pub(crate) struct CStruct {
    /// `[(size, align), …]`.
    pub(crate) sizes: TokenStream,
    /// `vec![Field, …]`, with `declare` in scope.
    pub(crate) fields: TokenStream,
    /// Writes the locals, with `writer`, `at` and `offsets` in scope.
    pub(crate) write: TokenStream,
    /// Sets the locals, with `reader`, `at` and `offsets` in scope.
    pub(crate) read: TokenStream,
    /// `{ member: local, … }`.
    pub(crate) pattern: TokenStream,
    pub(crate) checks: TokenStream,
}

pub(crate) fn derive_struct(input: &DeriveInput, data: &DataStruct) -> Result<TokenStream> {
    let (attributes, layout) = Attributes::of_type(input)?;
    let own = &input.ident;
    let name = name_or(attributes.name.as_ref(), own);
    let CStruct { sizes, fields, write, read, pattern, checks } = layout_of(&data.fields, &layout)?;
    Ok(quote! {
        const _: () = {
            use #layout as __layout;
            use __layout::rust::Data as __Data;
            #checks
            impl __Data for #own {
                const SIZE: usize = __layout::rust_layout::of_struct(#sizes).0;
                const ALIGN: usize = __layout::rust_layout::of_struct(#sizes).1;

                fn ty(declare: &mut __layout::rust::Declare) -> __layout::types::Type {
                    declare.named::<Self>(|declare| {
                        let fields = #fields;
                        let name = ::std::string::String::from(#name);
                        __layout::types::Declaration::Struct(
                            __layout::types::Struct { name, fields, packed: false, dynamic: false })
                    })
                }

                fn write(&self, writer: &mut __layout::rust::Writer<'_>, at: usize)
                    -> ::std::result::Result<(), ::std::boxed::Box<__layout::error::Fault>>
                {
                    const OFFSETS: &[usize] = &__layout::rust_layout::offsets(#sizes);
                    let Self #pattern = self;
                    #write
                    Ok(())
                }

                fn read(reader: &mut __layout::rust::Reader<'_>, at: usize)
                    -> ::std::result::Result<Self, ::std::boxed::Box<__layout::error::Fault>>
                {
                    const OFFSETS: &[usize] = &__layout::rust_layout::offsets(#sizes);
                    #read
                    Ok(Self #pattern)
                }
            }
            impl __layout::rust::Message for #own {
                fn variant(&self) -> &'static str {
                    ::std::stringify!(#own)
                }
            }
        };
    })
}

pub(crate) fn layout_of(fields: &Fields, _layout: &Path) -> Result<CStruct> {
    let fields = fields.iter().enumerate().map(|(n, field)| read_field(n, field)).collect::<Result<Vec<Field>>>()?;
    // A Vec without a length attribute has a length field before it.
    let mut names: Vec<String> = Vec::new();
    for field in &fields {
        if field.element.is_some() && field.attributes.length.is_none() {
            names.push(format!("{}_length", field.name));
        }
        names.push(field.name.clone());
    }
    let (mut sizes, mut made) = (Vec::new(), Vec::new());
    let (mut writes, mut reads, mut late, mut checks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for field in &fields {
        let Field { local, name, ty, attributes, element, .. } = field;
        let size = quote!((<#ty as __Data>::SIZE, <#ty as __Data>::ALIGN));
        match element {
            Some(element) => {
                let length = match &attributes.length {
                    Some((_, expression)) => {
                        let own: Vec<(&Ident, &str)> = fields.iter().map(|f| (&f.local, f.name.as_str())).collect();
                        let value = evaluate(expression, &own)?;
                        let text = renamed(expression, &own)?;
                        made.push(quote! {
                            let length = __layout::rust::Declare::length(#text, &[#(#names),*]);
                            let target = declare.target::<#element>();
                            fields.push(__layout::types::Field::new(#name, __layout::types::Type::counted(target, length)));
                        });
                        value
                    }
                    None => {
                        let at = sizes.len();
                        let counter = format!("{name}_length");
                        sizes.push(quote!((<usize as __Data>::SIZE, <usize as __Data>::ALIGN)));
                        made.push(quote! {
                            fields.push(__layout::types::Field::new(#counter, <usize as __Data>::ty(declare)));
                            let length = __layout::rust::Declare::length(#counter, &[#(#names),*]);
                            let target = declare.target::<#element>();
                            fields.push(__layout::types::Field::new(#name, __layout::types::Type::counted(target, length)));
                        });
                        writes.push(quote!(#local.len().write(writer, at + OFFSETS[#at])?;));
                        let read = quote!(<usize as __Data>::read(reader, at + OFFSETS[#at])?);
                        let length_local = format_ident!("{local}_length");
                        late.push(quote!(let #length_local = #read;));
                        quote!(::std::option::Option::Some(#length_local as i128))
                    }
                };
                let at = sizes.len();
                sizes.push(quote!((<usize as __Data>::SIZE, <usize as __Data>::ALIGN)));
                let pass = quote!(.map_err(|fault| fault.field(#name)));
                writes.push(match attributes.length {
                    Some(_) => quote! {
                        let needed = { #length };
                        writer.counted(at + OFFSETS[#at], #local, needed)#pass?;
                    },
                    None => quote!(writer.pointer(at + OFFSETS[#at], #local)#pass?;),
                });
                late.push(quote! {
                    let needed = { #length };
                    let #local = reader.counted::<#element>(at + OFFSETS[#at], needed)#pass?;
                });
            }
            None => {
                let at = sizes.len();
                sizes.push(size);
                let mut c_type = quote!(<#ty as __Data>::ty(declare));
                if let Some(c) = &attributes.c {
                    c_type = quote!(__layout::rust::as_integer(#c_type, #c));
                    checks.push(quote!(const _: () = __layout::rust::check_integer::<#ty>(#c);));
                }
                made.push(quote! {
                    let ty = #c_type;
                    fields.push(__layout::types::Field::new(#name, ty));
                });
                let pass = quote!(.map_err(|fault| fault.field(#name)));
                writes.push(quote!(<#ty as __Data>::write(#local, writer, at + OFFSETS[#at])#pass?;));
                reads.push(quote!(let #local = <#ty as __Data>::read(reader, at + OFFSETS[#at])#pass?;));
            }
        }
    }
    if fields.is_empty() {
        // A C struct has at least one field.
        sizes.push(quote!((<u8 as __Data>::SIZE, <u8 as __Data>::ALIGN)));
        made.push(quote!(fields.push(__layout::types::Field::new("unused", <u8 as __Data>::ty(declare)));));
    }
    let (members, locals): (Vec<_>, Vec<_>) = fields.iter().map(|field| (&field.member, &field.local)).unzip();
    Ok(CStruct {
        sizes: quote!([#(#sizes),*]),
        fields: quote! {{
            let mut fields = ::std::vec::Vec::new();
            #(#made)*
            fields
        }},
        write: quote!(#(#writes)*),
        read: quote!(#(#reads)* #(#late)*),
        pattern: quote!({ #(#members: #locals),* }),
        checks: quote!(#(#checks)*),
    })
}

fn read_field(number: usize, field: &syn::Field) -> Result<Field> {
    let attributes = Attributes::read(&field.attrs, &["name", "c", "length"])?;
    let element = vec_element(&field.ty);
    if element.is_none()
        && let Some((text, _)) = &attributes.length
    {
        return Err(Error::new_spanned(text, "only a Vec has a length"));
    }
    if let (Some(_), Some(c)) = (&element, &attributes.c) {
        return Err(Error::new_spanned(c, "give the element a struct of its own to choose its C type"));
    }
    let (member, name) = match &field.ident {
        Some(ident) => (syn::Member::Named(ident.clone()), name_or(attributes.name.as_ref(), ident)),
        None => {
            let member = syn::Member::Unnamed(syn::Index { index: number as u32, span: field.ty.span() });
            (member, name_or(attributes.name.as_ref(), &format!("value{number}")))
        }
    };
    let local = match &field.ident {
        Some(ident) => format_ident!("field_{}", ident.to_string().trim_start_matches("r#")),
        None => format_ident!("field_{number}"),
    };
    Ok(Field { local, member, name, ty: field.ty.clone(), attributes, element })
}

/// Returns the element type of a `Vec`, recognized by its name as in all derive macros.
fn vec_element(ty: &Type) -> Option<Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == "Vec")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(element) => Some(element.clone()),
        _ => None,
    }
}

fn known<'a>(path: &syn::ExprPath, fields: &'a [(&'a Ident, &'a str)]) -> Result<&'a (&'a Ident, &'a str)> {
    let wanted = path.path.get_ident().map(ToString::to_string).unwrap_or_default();
    let local = format!("field_{wanted}");
    let found = fields.iter().find(|(own, name)| *own == &local || *name == wanted);
    found.ok_or_else(|| Error::new_spanned(path, format!("no field '{wanted}' in this struct")))
}

fn operator(op: &BinOp) -> Result<(&'static str, Ident)> {
    let (text, method) = match op {
        BinOp::Add(_) => ("+", "checked_add"),
        BinOp::Sub(_) => ("-", "checked_sub"),
        BinOp::Mul(_) => ("*", "checked_mul"),
        BinOp::Div(_) => ("/", "checked_div"),
        other => return Err(Error::new_spanned(other, "expected + - * or / in a length")),
    };
    Ok((text, format_ident!("{method}")))
}

/// Generates code for the length, an `Option<i128>`, over the locals.
fn evaluate(expression: &Expr, fields: &[(&Ident, &str)]) -> Result<TokenStream> {
    match expression {
        Expr::Paren(inner) => evaluate(&inner.expr, fields),
        Expr::Path(path) => {
            let (local, _) = known(path, fields)?;
            Ok(quote!(i128::try_from(#local.clone()).ok()))
        }
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => {
                let number: i64 = number.base10_parse()?;
                Ok(quote!(::std::option::Option::Some(i128::from(#number))))
            }
            other => Err(Error::new_spanned(other, "expected an integer in a length")),
        },
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => {
            let inner = evaluate(&unary.expr, fields)?;
            Ok(quote!(#inner.and_then(i128::checked_neg)))
        }
        Expr::Binary(binary) => {
            let (left, right) = (evaluate(&binary.left, fields)?, evaluate(&binary.right, fields)?);
            let (_, method) = operator(&binary.op)?;
            Ok(quote!(#left.and_then(|left: i128| #right.and_then(|right: i128| left.#method(right)))))
        }
        other => Err(Error::new_spanned(other, "expected fields, integers and + - * / in a length")),
    }
}

/// Prints the length with the C names of the fields.
fn renamed(expression: &Expr, fields: &[(&Ident, &str)]) -> Result<String> {
    Ok(match expression {
        Expr::Paren(inner) => format!("({})", renamed(&inner.expr, fields)?),
        Expr::Path(path) => known(path, fields)?.1.to_string(),
        Expr::Unary(unary) => format!("-{}", renamed(&unary.expr, fields)?),
        Expr::Binary(binary) => {
            let (text, _) = operator(&binary.op)?;
            format!("{}{text}{}", renamed(&binary.left, fields)?, renamed(&binary.right, fields)?)
        }
        other => quote!(#other).to_string(),
    })
}
