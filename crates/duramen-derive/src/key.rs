//! `#[derive(Key)]`: a struct around one element, or an enum without fields, as an element of keys.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Result};

use crate::names;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "an element of a key has no parameters"));
    }
    if let Some(path) = names::serde(&input.attrs)?.changes_form.filter(|path| !path.is_ident("transparent"))
    {
        return Err(Error::new_spanned(path, "an element of a key is written by serde as it is in the key"));
    }
    match &input.data {
        Data::Struct(data) => wrapper(input, data),
        Data::Enum(data) => names_of(input, data),
        Data::Union(_) => Err(Error::new_spanned(&input.ident, "a union cannot be an element of a key")),
    }
}

fn wrapper(input: &DeriveInput, data: &syn::DataStruct) -> Result<TokenStream> {
    let Fields::Unnamed(fields) = &data.fields else { return Err(one_field(input)) };
    let [field] = &fields.unnamed.iter().collect::<Vec<_>>()[..] else { return Err(one_field(input)) };
    if let Some(path) = names::serde(&field.attrs)?.changes_form {
        return Err(Error::new_spanned(path, "an element of a key is written by serde as it is in the key"));
    }
    let (ident, kind) = (&input.ident, &field.ty);
    Ok(quote! {
        const _: () = {
            impl ::duramen::tuple::AsElement for #ident {
                fn append(
                    &self,
                    encoder: &mut ::duramen::tuple::Encoder<'_>,
                ) -> ::duramen::Result<()> {
                    ::duramen::tuple::AsElement::append(&self.0, encoder)
                }
            }

            impl ::duramen::tuple::OwnedElement for #ident {
                const COLUMN: ::duramen::schema::ColumnType =
                    <#kind as ::duramen::tuple::OwnedElement>::COLUMN;

                fn from_element(
                    element: ::duramen::tuple::Element,
                ) -> ::duramen::Result<Self> {
                    ::duramen::tuple::OwnedElement::from_element(element).map(#ident)
                }
            }

            ::duramen::key_element!(#ident);
        };
    })
}

fn one_field(input: &DeriveInput) -> Error {
    Error::new_spanned(
        &input.ident,
        "an element of a key is a struct around one, `struct OrderId(u64);`, or an enum without fields",
    )
}

fn names_of(input: &DeriveInput, data: &syn::DataEnum) -> Result<TokenStream> {
    let rename_all = names::serde(&input.attrs)?.rename_all;
    if let Some(rule) = rename_all {
        return Err(Error::new(rule.span(), "rename each variant by itself: `#[serde(rename = \"...\")]`"));
    }
    let mut arms = Vec::new();
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(Error::new_spanned(
                variant,
                "a variant in a key has no fields: it is stored as its name",
            ));
        }
        let serde = names::serde(&variant.attrs)?;
        if let Some(path) = serde.changes_form {
            return Err(Error::new_spanned(path, "a variant in a key is stored by its name: remove this"));
        }
        if !serde.aliases.is_empty() {
            return Err(Error::new_spanned(
                variant,
                "a variant in a key has one name: what is stored under another one would not be found",
            ));
        }
        let name =
            serde.rename.unwrap_or_else(|| variant.ident.to_string().trim_start_matches("r#").to_owned());
        arms.push((&variant.ident, name));
    }
    if arms.is_empty() {
        return Err(Error::new_spanned(&input.ident, "an enum without variants has no value to store"));
    }
    let ident = &input.ident;
    let variants: Vec<_> = arms.iter().map(|(variant, _)| variant).collect();
    let texts: Vec<_> = arms.iter().map(|(_, text)| text).collect();
    let expected = texts.iter().map(|text| text.as_str()).collect::<Vec<_>>().join(", ");
    Ok(quote! {
        const _: () = {
            impl ::duramen::tuple::AsElement for #ident {
                fn append(
                    &self,
                    encoder: &mut ::duramen::tuple::Encoder<'_>,
                ) -> ::duramen::Result<()> {
                    encoder.text(match self {
                        #(#ident::#variants => #texts,)*
                    });
                    ::core::result::Result::Ok(())
                }
            }

            impl ::duramen::tuple::OwnedElement for #ident {
                const COLUMN: ::duramen::schema::ColumnType = ::duramen::schema::ColumnType::Text;

                fn from_element(
                    element: ::duramen::tuple::Element,
                ) -> ::duramen::Result<Self> {
                    if let ::duramen::tuple::Element::Text(text) = &element {
                        match text.as_str() {
                            #(#texts => return ::core::result::Result::Ok(#ident::#variants),)*
                            _ => {}
                        }
                    }
                    ::core::result::Result::Err(::duramen::tuple::unexpected(&element, #expected))
                }
            }

            ::duramen::key_element!(#ident);
        };
    })
}

#[cfg(test)]
mod tests {
    //! The key written for a document now must equal the key under which it is stored.
    use syn::{DeriveInput, parse_quote};

    use super::derive;

    #[test]
    fn a_variant_has_one_name() {
        let is_taken = |input: DeriveInput| derive(&input).is_ok();
        assert!(is_taken(parse_quote!(
            enum Colour {
                #[serde(rename = "crimson")]
                Red,
                Blue,
            }
        )));
        assert!(!is_taken(parse_quote!(
            enum Colour {
                #[serde(alias = "red")]
                Crimson,
                Blue,
            }
        )));
        assert!(!is_taken(parse_quote!(
            enum Colour {
                #[serde(rename = "crimson", alias = "red")]
                Red,
            }
        )));
        assert!(!is_taken(parse_quote!(
            enum Colour {
                #[serde(rename(serialize = "red", deserialize = "crimson"))]
                Red,
            }
        )));
    }
}
