//! The derives of Duramen. Use them through the crate `duramen`, which re-exports them and documents the
//! traits. Owns the parsing of a struct's attributes, and the texts of compile errors: each names what to
//! write instead. Never handles a value; everything that costs run time is in `duramen`.

mod attributes;
mod coded;
mod collection;
mod field;
mod key;
mod names;
mod variants;
mod view;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct with named fields a collection. Documented with the trait, `duramen::Collection`.
#[proc_macro_derive(Collection, attributes(collection, key, migrate_from))]
pub fn derive_collection(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    collection::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a type an element of a key: a struct around one element, or an enum without fields. Documented with
/// the trait, `duramen::tuple::AsElement`.
#[proc_macro_derive(Key, attributes(key))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    key::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
