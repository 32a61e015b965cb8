//! `#[collection(...)]` and `#[migrate_from(...)]` on a struct, and `#[key(...)]` on its fields and on enums.

use syn::{Attribute, Error, LitInt, LitStr, Path, Result, parenthesized};

use crate::coded::CodedAttribute;
use crate::view::ViewAttribute;

/// The contents of `#[collection(...)]`.
#[derive(Default)]
pub(crate) struct CollectionAttributes {
    /// The name of the collection, if it does not follow from the struct's.
    pub(crate) name: Option<LitStr>,
    /// Documents are stored without the names of their fields.
    pub(crate) positional: bool,
    /// The version of its documents, if an attribute sets it.
    pub(crate) version: Option<LitInt>,
    /// The type whose documents it reads too.
    pub(crate) migrate_from: Option<Path>,
    pub(crate) views: Vec<ViewAttribute>,
    pub(crate) coded: Vec<CodedAttribute>,
}

/// How a key field gets its value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Assigned {
    /// The program sets it.
    Never,
    /// `push` assigns it, from a counter that no two transactions share.
    Spread,
    /// `push` assigns it: the last id plus one.
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
            } else if meta.path.is_ident("positional") {
                found.positional = true;
            } else if meta.path.is_ident("version") {
                let version: LitInt = meta.value()?.parse()?;
                if version.base10_parse::<u32>()? == 0 {
                    return Err(Error::new(version.span(), "versions begin at 1"));
                }
                found.version = Some(version);
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
                    "unknown: a collection takes `name = \"...\"`, `positional`, `version = ...`, `view(Name, key = ...)` and \
                     `coded(Name)`",
                ));
            }
            Ok(())
        })?;
    }
    found.migrate_from = migrate_from(attributes)?;
    if let (Some(version), Some(_)) = (&found.version, &found.migrate_from) {
        return Err(Error::new(
            version.span(),
            "the version of a type that migrates is one more than that of the older type: write it above that one",
        ));
    }
    Ok(found)
}

/// `#[migrate_from(Older)]`.
fn migrate_from(attributes: &[Attribute]) -> Result<Option<Path>> {
    let mut found = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("migrate_from")) {
        let older = attribute.parse_args::<Path>().map_err(|error| {
            Error::new(error.span(), "write the older type here: #[migrate_from(OldOrder)]")
        })?;
        if found.replace(older).is_some() {
            return Err(Error::new_spanned(
                attribute,
                "a type migrates from one: write the #[migrate_from] of the type before that above it",
            ));
        }
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

/// The contents of a field's `#[key]`; `None` without one.
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

/// How the values of an enum are stored and ordered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EnumOrder {
    ByName,
    ByNumber,
}

/// The contents of an enum's `#[key(...)]`; `None` without one.
pub(crate) fn enum_order(attributes: &[Attribute]) -> Result<Option<EnumOrder>> {
    let mut found = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("key")) {
        attribute.parse_nested_meta(|meta| {
            let order = if meta.path.is_ident("by_name") {
                EnumOrder::ByName
            } else if meta.path.is_ident("by_number") {
                EnumOrder::ByNumber
            } else {
                return Err(meta.error("unknown: an enum takes #[key(by_name)] or #[key(by_number)]"));
            };
            match found.replace(order) {
                Some(_) => Err(meta.error("an enum has one order: write by_name or by_number")),
                None => Ok(()),
            }
        })?;
    }
    Ok(found)
}
