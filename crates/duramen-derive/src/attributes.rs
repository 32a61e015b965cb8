//! `#[collection(...)]` on a struct and `#[key(...)]` on its fields.

use syn::{Attribute, Error, LitStr, Result, parenthesized};

use crate::coded::CodedAttribute;
use crate::view::ViewAttribute;

/// What `#[collection(...)]` says.
#[derive(Default)]
pub(crate) struct CollectionAttributes {
    /// The name of the collection, if it is not to be made of the struct's.
    pub(crate) name: Option<LitStr>,
    /// Documents are stored without the names of their fields.
    pub(crate) compact: bool,
    pub(crate) views: Vec<ViewAttribute>,
    pub(crate) coded: Vec<CodedAttribute>,
}

/// How a field that is the key gets its value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assigned {
    /// The program gives it.
    Never,
    /// `push` gives it, from a counter that no two transactions share.
    Spread,
    /// `push` gives it: the last one and one more.
    Sequential,
}

pub(crate) fn collection(attributes: &[Attribute]) -> Result<CollectionAttributes> {
    let mut found = CollectionAttributes::default();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("collection")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                let name: LitStr = meta.value()?.parse()?;
                check_name(&name)?;
                if found.name.replace(name).is_some() {
                    return Err(meta.error("the collection has two names"));
                }
            } else if meta.path.is_ident("compact") {
                found.compact = true;
            } else if meta.path.is_ident("view") {
                let inside;
                parenthesized!(inside in meta.input);
                found.views.push(inside.parse()?);
                if !inside.is_empty() {
                    return Err(inside.error("a comma is missing before this"));
                }
            } else if meta.path.is_ident("coded") {
                let inside;
                parenthesized!(inside in meta.input);
                found.coded.push(inside.parse()?);
                if !inside.is_empty() {
                    return Err(inside.error("a comma is missing before this"));
                }
            } else {
                return Err(meta.error(
                    "unknown: a collection takes `name = \"...\"`, `compact`, `view(Name, key = ...)` and `coded(Name)`",
                ));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

fn check_name(name: &LitStr) -> Result<()> {
    let value = name.value();
    if value.is_empty() || value.len() > 255 || value.chars().any(char::is_control) {
        return Err(Error::new(
            name.span(),
            "the name of a collection has 1 to 255 bytes and no control characters",
        ));
    }
    Ok(())
}

/// What `#[key]` says about a field; `None` without one.
pub(crate) fn key(attributes: &[Attribute]) -> Result<Option<Assigned>> {
    let mut found = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("key")) {
        if found.is_some() {
            return Err(Error::new_spanned(attribute, "one #[key] is enough"));
        }
        found = Some(match &attribute.meta {
            syn::Meta::Path(_) => Assigned::Never,
            _ => assigned(attribute)?,
        });
    }
    Ok(found)
}

fn assigned(attribute: &Attribute) -> Result<Assigned> {
    let mut assigned = Assigned::Never;
    attribute.parse_nested_meta(|meta| {
        if meta.path.is_ident("assigned") {
            assigned = Assigned::Spread;
            Ok(())
        } else if meta.path.is_ident("sequential") {
            assigned = Assigned::Sequential;
            Ok(())
        } else {
            Err(meta.error(
                "unknown: write #[key], #[key(assigned)] for an id that `push` gives, or #[key(sequential)] for \
                 one without gaps",
            ))
        }
    })?;
    Ok(assigned)
}
