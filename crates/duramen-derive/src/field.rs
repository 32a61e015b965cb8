//! The fields of a collection's struct: their written names, what their columns hold, which are the key.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Ident, LitStr, Result, Type};

use crate::attributes::{self, Assigned};
use crate::names;

/// A field as the collection sees it.
pub(crate) struct Field<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) kind: &'a Type,
    /// Its name in the stored document.
    pub(crate) written: String,
    /// The attribute by which it is not there.
    pub(crate) absent: Option<syn::Path>,
    /// The attribute by which it is not always there.
    pub(crate) sometimes: Option<syn::Path>,
    pub(crate) key: Option<Assigned>,
    /// Whether the value is written as its type says, without a function of the user's between.
    pub(crate) plain: bool,
}

/// Every field of the struct.
pub(crate) fn all<'a>(fields: &'a syn::FieldsNamed, rename_all: Option<&LitStr>) -> Result<Vec<Field<'a>>> {
    fields.named.iter().map(|field| one(field, rename_all)).collect()
}

fn one<'a>(field: &'a syn::Field, rename_all: Option<&LitStr>) -> Result<Field<'a>> {
    let ident = field.ident.as_ref().expect("the fields are named");
    let key = attributes::key(&field.attrs)?;
    let serde = names::serde(&field.attrs)?;
    if let (Some(_), Some(path)) = (key, &serde.changes_form) {
        return Err(Error::new_spanned(
            path,
            "a key field is stored as it is, so that every tool finds the document: only `rename`, `default` and \
             `alias` go with #[key]",
        ));
    }
    if key.is_some() && last_segment(&field.ty).is_some_and(|last| last == "Option") {
        return Err(Error::new_spanned(
            &field.ty,
            "a key field is always there: take the Option away, or make another field the key",
        ));
    }
    let plain = serde.changes_form.is_none_or(|path| path.is_ident("skip_serializing_if"));
    let unraw = ident.to_string().trim_start_matches("r#").to_owned();
    let written = match (serde.rename, rename_all) {
        (Some(name), _) => name,
        (None, Some(rule)) => names::renamed(&unraw, rule)?,
        (None, None) => unraw,
    };
    Ok(Field {
        ident,
        kind: &field.ty,
        written,
        absent: serde.absent,
        sometimes: serde.sometimes,
        key,
        plain,
    })
}

impl Field<'_> {
    /// What its column holds.
    pub(crate) fn column_type(&self, duramen: &TokenStream) -> TokenStream {
        let (kind, column_type) = (self.kind, quote!(#duramen::schema::ColumnType));
        if self.key.is_some() {
            quote!(<#kind as #duramen::tuple::OwnedElement>::COLUMN)
        } else if self.plain {
            quote!(#column_type::of_type::<#kind>())
        } else {
            quote!(#column_type::Any)
        }
    }
}

impl Field<'_> {
    /// Its type where it is not null.
    pub(crate) fn not_null(&self) -> &Type {
        let optional = last_segment(self.kind).is_some_and(|last| last == "Option");
        if optional { inside(self.kind).unwrap_or(self.kind) } else { self.kind }
    }
}

fn last_segment(kind: &Type) -> Option<&Ident> {
    match kind {
        Type::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
        _ => None,
    }
}

/// The `T` of `Option<T>`.
fn inside(kind: &Type) -> Option<&Type> {
    let Type::Path(path) = kind else { return None };
    let syn::PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else {
        return None;
    };
    match arguments.args.first()? {
        syn::GenericArgument::Type(kind) => Some(kind),
        _ => None,
    }
}
