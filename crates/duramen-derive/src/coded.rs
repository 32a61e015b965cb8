//! `coded(...)` in `#[collection(...)]`: views whose rows are computed by code.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, Path, Result, Token};

/// The contents of one `coded(...)`.
pub(crate) struct CodedAttribute {
    view: Path,
    /// Earlier versions whose code the program still has.
    was: Vec<Path>,
}

impl Parse for CodedAttribute {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut coded = CodedAttribute { view: input.parse()?, was: Vec::new() };
        while input.peek(Token![,]) {
            let _: Token![,] = input.parse()?;
            if input.is_empty() {
                break;
            }
            let word: Ident = input.parse()?;
            if word != "was" {
                return Err(Error::new(
                    word.span(),
                    "unknown: after its name a view in code takes `was = Earlier`",
                ));
            }
            let _: Token![=] = input.parse()?;
            coded.was.push(input.parse()?);
        }
        Ok(coded)
    }
}

impl CodedAttribute {
    /// Adds the view to a schema.
    pub(crate) fn spec(&self, duramen: &TokenStream) -> TokenStream {
        let view = &self.view;
        quote!(.view(<#view as #duramen::View>::spec()))
    }
}

/// The code of the views.
pub(crate) fn codes(all: &[CodedAttribute], duramen: &TokenStream) -> Option<TokenStream> {
    if all.is_empty() {
        return None;
    }
    let codes = all.iter().map(|CodedAttribute { view, was }| {
        quote! {
            #duramen::view::Code::of::<#view>(),
            #(#duramen::view::Code::was::<#view, #was>(),)*
        }
    });
    Some(quote! {
        fn codes() -> ::std::vec::Vec<#duramen::view::Code> {
            ::std::vec![#(#codes)*]
        }
    })
}
