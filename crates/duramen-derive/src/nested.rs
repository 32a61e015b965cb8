//! `#[derive(Nested)]`: the stored name and the type of each field of a struct inside of documents.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Ident, Result};

use crate::{field, names};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(syn::DataStruct { fields: Fields::Named(named), .. }) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "a part of a document has fields with names: derive Nested for a struct with them",
        ));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "a part of a document has no parameters: own the data (String, not &str)",
        ));
    }
    let serde = names::serde(&input.attrs)?;
    if let Some(path) = &serde.reshapes {
        return Err(Error::new_spanned(
            path,
            "a view finds a part by the names of its fields: take this attribute away, or do not derive Nested",
        ));
    }
    let ident = &input.ident;
    let fields = field::all(named, serde.rename_all.as_ref())?;
    // Under an alias a view would not find the field, and a path has no dots within a name. Where the field
    // is not stored, a view finds null: an absent `Option` or list is read so, too.
    let is_found = |field: &&field::Field<'_>| {
        let is_name = !field.written.contains(['.', '[']);
        let same_rows = field.is_optional() || field.is_list();
        let may_lack = field.sometimes.is_some() || field.default || serde.default;
        let is_filled = field.default_by_function || (may_lack && !same_rows);
        field.absent.is_none() && field.plain && field.aliases.is_empty() && is_name && !is_filled
    };
    let impls = fields.iter().filter(is_found).map(|field| {
        let (number, written, kind) = (number_of(field.ident), &field.written, field.not_null());
        quote! {
            impl ::duramen::Nested<#number> for #ident {
                type Kind = #kind;
                const NAME: &'static str = #written;
            }
        }
    });
    Ok(quote!(#(#impls)*))
}

/// What stands for a field's name in the trait, which cannot have text there: FNV-1a, 64 bits.
pub(crate) fn number_of(name: &Ident) -> u64 {
    let name = name.to_string();
    let unraw = name.trim_start_matches("r#");
    unraw.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
