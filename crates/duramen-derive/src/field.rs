//! The fields of a collection's struct: their stored names, their column types, and which form the key.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Ident, LitStr, Result, Type};

use crate::attributes::{self, Assigned};
use crate::names;
use crate::references::{self, ReferencesAttribute};

/// A field of the collection's struct.
pub(crate) struct Field<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) kind: &'a Type,
    /// Its name in the stored document.
    pub(crate) written: String,
    /// The attribute that removes it from documents.
    pub(crate) absent: Option<syn::Path>,
    /// The attribute because of which it is not always written.
    pub(crate) sometimes: Option<syn::Path>,
    pub(crate) key: Option<Assigned>,
    /// Whether the value is written by its type, without a function of the user.
    pub(crate) plain: bool,
    /// Further names under which it is read.
    pub(crate) aliases: Vec<String>,
    /// Whether an attribute lets it be read where it is not written.
    pub(crate) default: bool,
    /// Whether a function makes the value of the field where it is not written.
    pub(crate) default_by_function: bool,
    /// The collection whose keys it holds.
    pub(crate) references: Option<ReferencesAttribute>,
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
        aliases: serde.aliases,
        default: serde.default,
        default_by_function: serde.default_by_function,
        references: references::of(&field.attrs)?,
    })
}

impl Field<'_> {
    /// Its column type.
    pub(crate) fn column_type(&self, duramen: &TokenStream) -> TokenStream {
        let (kind, column_type) = (self.kind, quote!(#duramen::schema::ColumnType));
        if self.key.is_some() {
            // An alias of a type may hide a Reverse.
            quote!({
                const {
                    assert!(
                        !<#kind as #duramen::tuple::OwnedElement>::IS_DESCENDING,
                        "the key of a collection is ascending: take Reverse away"
                    )
                }
                <#kind as #duramen::tuple::OwnedElement>::COLUMN
            })
        } else if self.plain {
            let form = self.form(duramen);
            quote!(#column_type::of_type::<#kind>().in_form(#form))
        } else {
            quote!(#column_type::Any)
        }
    }
}

impl Field<'_> {
    /// The description that the catalogue keeps. Serde reads an absent `Option` as `None`, but not at the end
    /// of a list.
    pub(crate) fn shape(&self, positional: bool, all_default: bool, duramen: &TokenStream) -> TokenStream {
        let (kind, written) = (self.kind, &self.written);
        let source = source(self.kind);
        let optional = self.is_optional();
        let custom = (!self.plain).then(|| quote!(.custom()));
        let sometimes = self.sometimes.is_some().then(|| quote!(.sometimes()));
        let default = (self.default || all_default || (optional && self.plain && !positional))
            .then(|| quote!(.default()));
        // Of an absent `Option` and an absent list a view has the same rows as of what serde reads there.
        let same_rows = optional || self.is_list();
        let by_function = self.default_by_function;
        let filled = (by_function || ((self.default || all_default) && !same_rows))
            .then(|| quote!(.filled(#by_function)));
        let aliases = &self.aliases;
        let also = (!aliases.is_empty()).then(|| quote!(.also([#(#aliases),*])));
        let form = self.form(duramen);
        let in_form = self.plain.then(|| quote!(.in_form(#form)));
        quote!(#duramen::schema::Field::of::<#kind>(#written, #source) #in_form #custom #sometimes #default #filled #also)
    }

    /// How its values are stored if it is an enum with `#[derive(Key)]`.
    fn form(&self, duramen: &TokenStream) -> TokenStream {
        let kind = self.kind;
        quote!(#duramen::__enum_form!(#kind))
    }

    /// Whether it holds items that a view can have rows for.
    pub(crate) fn is_list(&self) -> bool {
        last_segment(self.not_null())
            .is_some_and(|last| ["Vec", "BTreeSet", "HashSet"].iter().any(|list| last == list))
    }

    /// Whether its type is a `Reverse`.
    pub(crate) fn is_reverse(&self) -> bool {
        last_segment(self.not_null()).is_some_and(|last| last == "Reverse")
    }

    /// Whether there is an `Option` around its type.
    pub(crate) fn is_optional(&self) -> bool {
        last_segment(self.kind).is_some_and(|last| last == "Option")
    }

    /// The type of a list's items.
    pub(crate) fn item(&self) -> Option<&Type> {
        inside(self.not_null())
    }

    /// Its type without an `Option` around it.
    pub(crate) fn not_null(&self) -> &Type {
        if self.is_optional() { inside(self.kind).unwrap_or(self.kind) } else { self.kind }
    }
}

/// A type as written in source code: tokens without blanks, except between words.
fn source(kind: &Type) -> String {
    let tokens = quote!(#kind).to_string();
    let mut out = String::new();
    for word in tokens.split(' ') {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        if out.ends_with([',', ';']) || (out.ends_with(is_word) && word.starts_with(is_word)) {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
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
