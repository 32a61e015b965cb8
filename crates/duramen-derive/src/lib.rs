//! The derives of Duramen. Use them through the crate `duramen`, which re-exports them and documents the
//! traits. Owns the parsing of a struct's attributes, and the texts of compile errors: each names what to
//! write instead. Never handles a value; everything that costs run time is in `duramen`.

mod attributes;
mod coded;
mod collection;
mod field;
mod key;
mod names;
mod nested;
mod references;
mod stub;
mod variants;
mod view;
mod view_key;

use proc_macro::TokenStream;
use quote::quote;
use syn::{DeriveInput, parse_macro_input};

/// What a derive has made. After an error it is the error with a stub, so that the compiler reports nothing
/// else.
fn or_stub(
    derived: syn::Result<proc_macro2::TokenStream>,
    stub: impl FnOnce() -> Option<proc_macro2::TokenStream>,
) -> TokenStream {
    let or_error = derived.unwrap_or_else(|error| {
        let (error, stub) = (error.into_compile_error(), stub());
        quote!(#error #stub)
    });
    or_error.into()
}

/// Makes a struct with named fields a collection. Documented with the trait, `duramen::Collection`.
#[proc_macro_derive(Collection, attributes(collection, key, migrate_from, references))]
pub fn derive_collection(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    or_stub(collection::derive(&input), || stub::collection(&input))
}

/// Makes a type an element of a key: a struct around one element, or an enum without fields.
///
/// A struct such as `struct UserId(u64);` is stored and ordered as what is in it. An enum chooses:
/// `#[key(by_name)]` stores the names of its variants, and orders them as text. `#[key(by_number)]` stores
/// and orders numbers that the source gives (`Low = 1`), as serde does with `into` and `try_from`.
#[proc_macro_derive(Key, attributes(key))]
pub fn derive_key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    or_stub(key::derive(&input), || stub::key(&input))
}

/// Names the fields of a struct inside of documents, so that views have them in their keys. Documented with
/// the trait, `duramen::Nested`.
#[proc_macro_derive(Nested)]
pub fn derive_nested(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    nested::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
