//! Enums: without data a C enum, with data a tagged union.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{DataEnum, DeriveInput, Error, Fields, Path, Result};

use crate::attributes::{Attributes, name_or};
use crate::fields::{CStruct, layout_of};

pub(crate) fn derive_enum(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream> {
    let (attributes, layout) = Attributes::of_type(input)?;
    let name = name_or(attributes.name.as_ref(), &input.ident);
    if data.variants.is_empty() {
        return Err(Error::new_spanned(&input.ident, "an enum of C has at least one constant"));
    }
    let plain = data.variants.iter().all(|variant| matches!(variant.fields, Fields::Unit));
    if plain { constants(input, data, &name, &layout) } else { tagged(input, data, &name, &layout) }
}

fn constants(input: &DeriveInput, data: &DataEnum, name: &str, layout: &Path) -> Result<TokenStream> {
    let own = &input.ident;
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let names = data
        .variants
        .iter()
        .map(|variant| {
            let attributes = Attributes::read(&variant.attrs, &["name"])?;
            Ok(name_or(attributes.name.as_ref(), &format!("{name}_{}", variant.ident)))
        })
        .collect::<Result<Vec<String>>>()?;
    Ok(quote! {
        const _: () = {
            use #layout as __layout;
            use __layout::rust::Data as __Data;
            impl __Data for #own {
                const SIZE: usize = ::std::mem::size_of::<::std::ffi::c_int>();
                const ALIGN: usize = ::std::mem::align_of::<::std::ffi::c_int>();

                fn ty(declare: &mut __layout::rust::Declare) -> __layout::types::Type {
                    declare.named::<Self>(|_| {
                        let constants = ::std::vec![#((::std::string::String::from(#names), #own::#variants as i64)),*];
                        let name = ::std::string::String::from(#name);
                        __layout::types::Declaration::Enum(__layout::types::Enum { name, constants })
                    })
                }

                fn write(&self, writer: &mut __layout::rust::Writer<'_>, at: usize)
                    -> ::std::result::Result<(), ::std::boxed::Box<__layout::error::Fault>>
                {
                    let value = match self { #(#own::#variants => #own::#variants as i64),* };
                    (value as ::std::ffi::c_int).write(writer, at)
                }

                fn read(reader: &mut __layout::rust::Reader<'_>, at: usize)
                    -> ::std::result::Result<Self, ::std::boxed::Box<__layout::error::Fault>>
                {
                    let value = i64::from(<::std::ffi::c_int as __Data>::read(reader, at)?);
                    #(if value == #own::#variants as i64 { return Ok(#own::#variants); })*
                    ::std::unreachable!("enums were checked with the message")
                }
            }
        };
    })
}

fn tagged(input: &DeriveInput, data: &DataEnum, name: &str, layout: &Path) -> Result<TokenStream> {
    let own = &input.ident;
    let (tag_name, body_name) = (format!("{name}_tag"), format!("{name}_body"));
    let (mut constants, mut cases, mut sizes, mut all_checks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let variant_names: Vec<String> = variants.iter().map(ToString::to_string).collect();
    for (number, variant) in data.variants.iter().enumerate() {
        if let Some((_, value)) = &variant.discriminant {
            return Err(Error::new_spanned(value, "the tags of an enum with data count from 0"));
        }
        let attributes = Attributes::read(&variant.attrs, &["name"])?;
        let (ident, tag) = (&variant.ident, number as i64);
        let case = name_or(attributes.name.as_ref(), ident);
        let full = format!("{name}_{case}");
        let constant = format!("{full}_tag");
        constants.push(quote!((::std::string::String::from(#constant), #tag)));
        if variant.fields.is_empty() {
            writes.push(quote!(#own::#ident { .. } => (#tag as ::std::ffi::c_int).write(writer, at)?,));
            reads.push(quote!(#tag => #own::#ident {},));
            continue;
        }
        let CStruct { sizes: own_sizes, fields, write, read, pattern, checks } = layout_of(&variant.fields, layout)?;
        all_checks.push(checks);
        let offsets = format_ident!("OFFSETS");
        cases.push(quote! {{
            let fields = #fields;
            let name = ::std::string::String::from(#full);
            let made = __layout::types::Struct { name, fields, packed: false, dynamic: false };
            let ty = declare.inner(__layout::types::Declaration::Struct(made));
            __layout::types::Case { name: ::std::string::String::from(#case), tag: #tag, ty }
        }});
        sizes.push(quote!(__layout::rust_layout::of_struct(#own_sizes)));
        writes.push(quote! {
            #own::#ident #pattern => {
                const #offsets: &[usize] = &__layout::rust_layout::offsets(#own_sizes);
                (#tag as ::std::ffi::c_int).write(writer, at)?;
                let at = at + BODY;
                #write
            }
        });
        reads.push(quote! {
            #tag => {
                const #offsets: &[usize] = &__layout::rust_layout::offsets(#own_sizes);
                let at = at + BODY;
                #read
                #own::#ident #pattern
            }
        });
    }
    Ok(quote! {
        const _: () = {
            use #layout as __layout;
            use __layout::rust::Data as __Data;
            #(#all_checks)*
            const INT: (usize, usize) =
                (::std::mem::size_of::<::std::ffi::c_int>(), ::std::mem::align_of::<::std::ffi::c_int>());
            const UNION: (usize, usize) = __layout::rust_layout::of_union([#(#sizes),*]);
            const BODY: usize = __layout::rust_layout::offsets([INT, UNION])[1];
            impl __Data for #own {
                const SIZE: usize = __layout::rust_layout::of_struct([INT, UNION]).0;
                const ALIGN: usize = __layout::rust_layout::of_struct([INT, UNION]).1;

                fn ty(declare: &mut __layout::rust::Declare) -> __layout::types::Type {
                    declare.named::<Self>(|declare| {
                        let text = |text: &str| ::std::string::String::from(text);
                        let constants = ::std::vec![#(#constants),*];
                        let tag = __layout::types::Enum { name: text(#tag_name), constants };
                        let tag = declare.inner(__layout::types::Declaration::Enum(tag));
                        let cases = ::std::vec![#(#cases),*];
                        let body = __layout::types::Union { name: text(#body_name), cases };
                        let body = declare.inner(__layout::types::Declaration::Union(body));
                        let tag = __layout::types::Field::new("tag", tag);
                        let body = __layout::types::Field { name: text("body"), ty: body, tag: Some(0) };
                        let fields = ::std::vec![tag, body];
                        __layout::types::Declaration::Struct(
                            __layout::types::Struct { name: text(#name), fields, packed: false, dynamic: false })
                    })
                }

                fn write(&self, writer: &mut __layout::rust::Writer<'_>, at: usize)
                    -> ::std::result::Result<(), ::std::boxed::Box<__layout::error::Fault>>
                {
                    match self { #(#writes)* }
                    Ok(())
                }

                fn read(reader: &mut __layout::rust::Reader<'_>, at: usize)
                    -> ::std::result::Result<Self, ::std::boxed::Box<__layout::error::Fault>>
                {
                    let tag = i64::from(<::std::ffi::c_int as __Data>::read(reader, at)?);
                    Ok(match tag {
                        #(#reads)*
                        _ => ::std::unreachable!("enums were checked with the message"),
                    })
                }
            }
            impl __layout::rust::Message for #own {
                fn variant(&self) -> &'static str {
                    match self { #(#own::#variants { .. } => #variant_names),* }
                }
            }
        };
    })
}
