//! `#[references(User, on_delete = cascade)]` on a field: its values are keys of another collection.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Ident, Path, Result, Token};

use crate::field::Field;

/// The contents of `#[references(..)]`.
pub(crate) struct ReferencesAttribute {
    /// The type of the other collection.
    to: Path,
    /// What a delete there does; without it, `restrict`.
    on_delete: Option<Ident>,
}

const ACTIONS: [(&str, &str); 3] = [("restrict", "Restrict"), ("cascade", "Cascade"), ("clear", "Clear")];

const USAGE: &str = "write the type whose documents the field refers to, and what deleting one does: \
                     #[references(User, on_delete = restrict)], or cascade, or clear";

impl Parse for ReferencesAttribute {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let to: Path = input.parse().map_err(|error| Error::new(error.span(), USAGE))?;
        let mut on_delete = None;
        while input.peek(Token![,]) {
            let _: Token![,] = input.parse()?;
            if input.is_empty() {
                break;
            }
            let word: Ident = input.parse().map_err(|error| Error::new(error.span(), USAGE))?;
            if word != "on_delete" {
                return Err(Error::new(word.span(), format!("unknown: {USAGE}")));
            }
            let _: Token![=] = input.parse()?;
            let action: Ident = input.parse().map_err(|error| Error::new(error.span(), USAGE))?;
            if !ACTIONS.iter().any(|(name, _)| action == name) {
                let what = "unknown: a delete is refused (restrict), deletes what refers to it (cascade), or makes \
                            the field None (clear)";
                return Err(Error::new(action.span(), what));
            }
            if on_delete.replace(action).is_some() {
                return Err(Error::new(word.span(), "one on_delete is enough"));
            }
        }
        if !input.is_empty() {
            return Err(input.error("a comma is missing before this"));
        }
        Ok(ReferencesAttribute { to, on_delete })
    }
}

/// The contents of a field's `#[references(..)]`; `None` without one.
pub(crate) fn of(attributes: &[Attribute]) -> Result<Option<ReferencesAttribute>> {
    let mut found = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("references")) {
        if matches!(attribute.meta, syn::Meta::Path(_)) {
            return Err(Error::new_spanned(attribute, USAGE));
        }
        if found.replace(attribute.parse_args()?).is_some() {
            let what = "one #[references] is enough: a field refers to one collection; take this one away";
            return Err(Error::new_spanned(attribute, what));
        }
    }
    Ok(found)
}

/// Checks all references, and makes the code that checks their types.
pub(crate) fn all(fields: &[Field<'_>], duramen: &TokenStream) -> Result<TokenStream> {
    let mut checks = TokenStream::new();
    for field in fields {
        let Some(reference) = &field.references else { continue };
        check(field, reference)?;
        let to = &reference.to;
        let kind = if field.is_list() { field.item() } else { None }.unwrap_or_else(|| field.not_null());
        checks.extend(quote_spanned! {kind.span()=>
            const _: () = {
                const fn is_key<C: #duramen::Collection, K: #duramen::KeyOf<C>>() {}
                is_key::<#to, #kind>();
            };
        });
    }
    Ok(checks)
}

fn check(field: &Field<'_>, reference: &ReferencesAttribute) -> Result<()> {
    if let Some(path) = &field.absent {
        return Err(Error::new_spanned(
            path,
            "a field that is not stored refers to nothing: take one of the two away",
        ));
    }
    if !field.plain {
        return Err(Error::new_spanned(
            field.ident,
            "a reference is stored as the key is, so that every tool finds the document: only `rename`, `default`, \
             `alias` and `skip_serializing_if` go with #[references]",
        ));
    }
    if let Some(path) = field.sometimes.as_ref().filter(|_| !field.is_optional() && !field.is_list()) {
        return Err(Error::new_spanned(
            path,
            format!(
                "where {} is left out, the document refers to nothing, and the type reads a key: take this attribute away, or \
                 make it an Option",
                field.ident
            ),
        ));
    }
    let clears = reference.on_delete.as_ref().filter(|action| *action == "clear");
    if let Some(action) = clears.filter(|_| !field.is_optional() && !field.is_list()) {
        return Err(Error::new(
            action.span(),
            format!("clear makes {} None: make it an Option, or write restrict or cascade", field.ident),
        ));
    }
    Ok(())
}

/// The calls that add the references to the schema.
pub(crate) fn in_schema(fields: &[Field<'_>], duramen: &TokenStream) -> Vec<TokenStream> {
    let one = |field: &Field<'_>| {
        let ReferencesAttribute { to, on_delete } = field.references.as_ref()?;
        let written = &field.written;
        let wanted = on_delete.as_ref().map_or("restrict".to_owned(), Ident::to_string);
        let (_, action) =
            ACTIONS.iter().find(|(name, _)| *name == wanted).expect("it was checked when parsed");
        let action = Ident::new(action, proc_macro2::Span::call_site());
        let each = field.is_list().then(|| quote!(.each()));
        Some(quote! {
            .reference(
                #duramen::Reference::new(#written, <#to as #duramen::Collection>::NAME)
                    .on_delete(#duramen::OnDelete::#action)
                    .declared()
                    #each
            )
        })
    };
    fields.iter().filter_map(one).collect()
}

/// The method that names the types which the references name.
pub(crate) fn referred_types(fields: &[Field<'_>], duramen: &TokenStream) -> Option<TokenStream> {
    let targets: Vec<&Path> =
        fields.iter().filter_map(|field| Some(&field.references.as_ref()?.to)).collect();
    if targets.is_empty() {
        return None;
    }
    Some(quote! {
        fn referred_types() -> ::std::vec::Vec<#duramen::StoredType> {
            ::std::vec![#(#duramen::StoredType::of::<#targets>()),*]
        }
    })
}
