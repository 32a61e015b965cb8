//! Implementations beside the error of a derive. They never run.
//!
//! Without them the compiler would also report each use of the type: it is no collection, no element of a
//! key.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Field, Type};

/// A collection whose key is made of the fields with `#[key]`, as far as they can be in a key.
pub(crate) fn collection(input: &DeriveInput) -> Option<TokenStream> {
    if !input.generics.params.is_empty() {
        return None;
    }
    let ident = &input.ident;
    let fields: Vec<&Field> = match &input.data {
        Data::Struct(data) => data.fields.iter().collect(),
        _ => Vec::new(),
    };
    let is_key = |field: &&&Field| field.attrs.iter().any(|attribute| attribute.path().is_ident("key"));
    let named_id = |field: &&&Field| field.ident.as_ref().is_some_and(|ident| ident == "id");
    let mut keys: Vec<&Type> = fields.iter().filter(is_key).map(|field| &field.ty).collect();
    if keys.is_empty() {
        keys.extend(fields.iter().find(named_id).map(|field| &field.ty));
    }
    let key = match keys[..] {
        [] => quote!(u64),
        _ if keys.len() > 8 || keys.iter().any(|kind| is_no_key(kind)) => quote!(u64),
        [one] => quote!(#one),
        _ => quote!((#(#keys,)*)),
    };
    let attributes = fields.iter().flat_map(|field| &field.attrs);
    let assigned = attributes.filter(|attribute| is_assigned(attribute)).map(|_| {
        quote! {
            impl ::duramen::AssignedKey for #ident {
                const ORDER: ::duramen::IdOrder = ::duramen::IdOrder::Spread;

                fn set_key(&mut self, _: Self::Key) {
                    ::core::unreachable!()
                }
            }
        }
    });
    let assigned = assigned.take(1);
    Some(quote! {
        const _: () = {
            impl ::duramen::Collection for #ident {
                const NAME: &'static str = "";
                type Key = #key;

                fn key(&self) -> Self::Key {
                    ::core::unreachable!()
                }

                fn write_key(&self, _: &mut ::duramen::tuple::Encoder<'_>) -> ::duramen::Result<()> {
                    ::core::unreachable!()
                }

                fn schema() -> ::duramen::Schema {
                    ::core::unreachable!()
                }
            }

            #(#assigned)*
        };
    })
}

/// Whether the type is around another one, which alone could be in a key.
fn is_no_key(kind: &Type) -> bool {
    let Type::Path(path) = kind else { return true };
    let last = path.path.segments.last();
    last.is_none_or(|last| ["Reverse", "Option", "Vec"].iter().any(|name| last.ident == name))
}

fn is_assigned(attribute: &Attribute) -> bool {
    let names = |meta: &syn::MetaList| {
        let tokens = meta.tokens.to_string();
        tokens == "assigned" || tokens == "sequential"
    };
    attribute.path().is_ident("key") && attribute.meta.require_list().is_ok_and(names)
}

/// An element of a key.
pub(crate) fn key(input: &DeriveInput) -> Option<TokenStream> {
    if !input.generics.params.is_empty() {
        return None;
    }
    let ident = &input.ident;
    Some(quote! {
        const _: () = {
            impl ::duramen::tuple::AsElement for #ident {
                fn append(&self, _: &mut ::duramen::tuple::Encoder<'_>) -> ::duramen::Result<()> {
                    ::core::unreachable!()
                }
            }

            impl ::duramen::tuple::OwnedElement for #ident {
                const COLUMN: ::duramen::schema::ColumnType = ::duramen::schema::ColumnType::Any;

                fn from_element(_: ::duramen::tuple::Element) -> ::duramen::Result<Self> {
                    ::core::unreachable!()
                }
            }

            ::duramen::key_element!(#ident);
        };
    })
}
