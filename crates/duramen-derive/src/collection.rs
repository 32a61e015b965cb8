//! `#[derive(Collection)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, LitStr, Result};

use crate::attributes::{self, Assigned, CollectionAttributes};
use crate::coded;
use crate::field::{self, Field};
use crate::names;
use crate::references;
use crate::view;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let attributes = attributes::collection(&input.attrs)?;
    let named = named_fields(input)?;
    let serde = names::serde(&input.attrs)?;
    if let Some(path) = &serde.reshapes {
        return Err(Error::new_spanned(
            path,
            "a document is stored as a map of its fields: take this attribute away, or put the type into a field",
        ));
    }
    let rename_all = serde.rename_all;
    let fields = field::all(named, rename_all.as_ref())?;
    let keys: Vec<&Field<'_>> = fields.iter().filter(|field| field.key.is_some()).collect();
    check_keys(input, &keys)?;
    let sometimes = fields.iter().find_map(|field| field.absent.as_ref().or(field.sometimes.as_ref()));
    if let Some(path) = sometimes.filter(|_| attributes.positional) {
        return Err(Error::new_spanned(
            path,
            "positional documents are told apart by the places of their fields: every field must be written, always",
        ));
    }
    if let Some(part) = attributes.views.iter().find_map(|view| view.path()).filter(|_| attributes.positional)
    {
        return Err(Error::new(
            part.span(),
            format!(
                "positional documents store the parts of {part} without names: take `positional` away, or make the part a field"
            ),
        ));
    }
    let duramen = quote!(::duramen);
    let references = references::all(&fields, &duramen)?;
    let body = body(input, &attributes, &fields, &keys, serde.default, &duramen);
    let assigned = assigned(input, &keys, &duramen);
    let (types, views) = view::derive(&input.ident, &input.vis, &attributes.views, &fields, &duramen)?;
    Ok(quote! {
        #types
        const _: () = {
            #body
            #assigned
            #views
            #references
        };
    })
}

fn named_fields(input: &DeriveInput) -> Result<&syn::FieldsNamed> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "a collection is a struct: its documents have the same fields; put the enum into a field of one",
        ));
    };
    let Fields::Named(named) = &data.fields else {
        return Err(Error::new_spanned(
            &input.ident,
            "a collection needs fields with names: they are what is stored, and what tools show",
        ));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a collection has no parameters: one name in the database stands for one type; own the data (String, \
             not &str)",
        ));
    }
    Ok(named)
}

fn check_keys(input: &DeriveInput, keys: &[&Field<'_>]) -> Result<()> {
    let Some(first) = keys.first() else {
        return Err(Error::new_spanned(
            &input.ident,
            "a collection needs a key: write #[key] above the field, or the fields, that tell its documents apart",
        ));
    };
    if let Some(field) = keys.iter().find(|field| field.is_reverse()) {
        return Err(Error::new_spanned(
            field.kind,
            "the key of a collection is ascending: take Reverse away, and read from the end with `reverse`",
        ));
    }
    if keys.len() > 8 {
        return Err(Error::new_spanned(keys[8].ident, "a key has at most 8 fields"));
    }
    let assigns = |field: &&Field<'_>| matches!(field.key, Some(Assigned::Spread | Assigned::Sequential));
    if keys.len() > 1
        && let Some(field) = keys.iter().copied().find(assigns)
    {
        return Err(Error::new_spanned(
            field.ident,
            format!("an assigned key stands alone: {} is part of the key, too", first.ident),
        ));
    }
    Ok(())
}

fn body(
    input: &DeriveInput,
    attributes: &CollectionAttributes,
    fields: &[Field<'_>],
    keys: &[&Field<'_>],
    all_default: bool,
    duramen: &TokenStream,
) -> TokenStream {
    let ident = &input.ident;
    let name = attributes.name.clone().unwrap_or_else(|| {
        LitStr::new(&names::snake_case(ident.to_string().trim_start_matches("r#")), ident.span())
    });
    let positional = attributes.positional;
    let (key_type, key_value) = key(keys);
    let key_idents = keys.iter().map(|field| field.ident);
    let key_names = keys.iter().map(|field| &field.written);
    let columns = fields.iter().filter(|field| field.absent.is_none()).map(|field| {
        let (shape, kind) = (field.shape(positional, all_default, duramen), field.column_type(duramen));
        quote!(.field(#shape, #kind))
    });
    let all_names = fields.iter().map(|field| &field.written);
    let in_order = positional.then(|| quote!(.positional([#(#all_names),*])));
    let views = attributes.views.iter().map(|view| {
        let view = view.name();
        quote!(.view(<#view as #duramen::View>::spec()))
    });
    let coded = attributes.coded.iter().map(|coded| coded.spec(duramen));
    let references = references::in_schema(fields, duramen);
    let methods = [coded::codes(&attributes.coded, duramen), references::referred_types(fields, duramen)];
    let methods = methods.into_iter().flatten();
    let version = version(attributes, duramen);
    let at_version = version.as_ref().map(|version| quote!(.at_version(#version)));
    let constant = version.map(|version| quote!(const VERSION: u32 = #version;));
    let migration = migration(attributes, duramen);
    quote! {
        impl #duramen::Collection for #ident {
            const NAME: &'static str = #name;
            const POSITIONAL: bool = #positional;
            #constant
            type Key = #key_type;

            fn key(&self) -> Self::Key {
                #key_value
            }

            fn write_key(
                &self,
                encoder: &mut #duramen::tuple::Encoder<'_>,
            ) -> #duramen::Result<()> {
                #(#duramen::tuple::AsElement::append(&self.#key_idents, encoder)?;)*
                ::core::result::Result::Ok(())
            }

            fn schema() -> #duramen::Schema {
                #duramen::Schema::new(#name)
                    .key([#(#key_names),*])
                    #at_version
                    #(#columns)*
                    #in_order
                    #(#views)*
                    #(#coded)*
                    #(#references)*
            }

            #(#methods)*

            #migration
        }
    }
}

/// The version of the type's documents, unless it is the first.
fn version(attributes: &CollectionAttributes, duramen: &TokenStream) -> Option<TokenStream> {
    let after =
        attributes.migrate_from.as_ref().map(|older| quote!(<#older as #duramen::Collection>::VERSION + 1));
    attributes.version.as_ref().map(|version| quote!(#version)).or(after)
}

/// The code that reads documents of earlier versions.
fn migration(attributes: &CollectionAttributes, duramen: &TokenStream) -> Option<TokenStream> {
    let older = attributes.migrate_from.as_ref()?;
    Some(quote! {
        fn older() -> ::std::vec::Vec<#duramen::Schema> {
            let mut all = <#older as #duramen::Collection>::older();
            all.push(<#older as #duramen::Collection>::schema());
            all
        }

        fn from_version(version: u32, document: &[u8]) -> #duramen::Result<Self> {
            #duramen::migrate::convert::<#older, Self>(version, document)
        }
    })
}

/// The type of the key, and its construction from a document: an element, or a tuple of several.
fn key(keys: &[&Field<'_>]) -> (TokenStream, TokenStream) {
    let kinds = keys.iter().map(|field| field.kind);
    let idents = keys.iter().map(|field| field.ident);
    match keys {
        [one] => {
            let (kind, ident) = (one.kind, one.ident);
            (quote!(#kind), quote!(::core::clone::Clone::clone(&self.#ident)))
        }
        _ => (quote!((#(#kinds,)*)), quote!((#(::core::clone::Clone::clone(&self.#idents),)*))),
    }
}

fn assigned(input: &DeriveInput, keys: &[&Field<'_>], duramen: &TokenStream) -> Option<TokenStream> {
    let [key] = keys else { return None };
    let order = match key.key? {
        Assigned::Never => return None,
        Assigned::Spread => quote!(Spread),
        Assigned::Sequential => quote!(Sequential),
    };
    let (ident, field) = (&input.ident, key.ident);
    Some(quote! {
        impl #duramen::AssignedKey for #ident {
            const ORDER: #duramen::IdOrder = #duramen::IdOrder::#order;

            fn set_key(&mut self, key: Self::Key) {
                self.#field = key;
            }
        }
    })
}
