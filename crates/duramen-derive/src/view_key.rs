//! An element of a view's key in `view(Name, key = ...)`: `city`, `home.city`, `lines[].product`, `desc(at)`.
//!
//! Owns its grammar, the checks of a whole key, and its Rust type.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, Result, Token, bracketed, parenthesized};

use crate::field::Field;
use crate::nested;
use crate::view::ViewAttribute;

/// A field or a part of one, with its direction.
pub(crate) struct KeyItem {
    /// The field, and the fields inside of it.
    path: Vec<Part>,
    is_descending: bool,
}

/// A field on the way of a path.
struct Part {
    name: Ident,
    /// Whether it is a list, and the path goes on in each of its items.
    is_each: bool,
}

impl Parse for KeyItem {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(Token![-]) {
            return Err(input.error("write desc(field) for the largest value first"));
        }
        let first: Ident = input.parse()?;
        if first == "desc" && input.peek(syn::token::Paren) {
            let inside;
            parenthesized!(inside in input);
            let path = path(inside.parse()?, &inside)?;
            if !inside.is_empty() {
                return Err(
                    inside.error("desc takes one field, or a part of one: desc(at), desc(home.floor)")
                );
            }
            return Ok(KeyItem { path, is_descending: true });
        }
        let path = path(first, input)?;
        let is_direction =
            |word: &Ident| ["asc", "desc"].iter().any(|one| word.to_string().to_lowercase() == *one);
        if let Some(word) = input.fork().parse::<Ident>().ok().filter(is_direction) {
            let last = &path[path.len() - 1].name;
            return Err(Error::new(
                word.span(),
                format!("write desc({last}) for the largest value first, or {last} alone"),
            ));
        }
        Ok(KeyItem { path, is_descending: false })
    }
}

/// The rest of `home.city` or `lines[].product` after its first name.
fn path(first: Ident, input: ParseStream<'_>) -> Result<Vec<Part>> {
    let mut path = vec![part(first, input)?];
    while input.peek(Token![.]) {
        let _: Token![.] = input.parse()?;
        let name: Result<Ident> = input.parse();
        let name = name.map_err(|error| {
            Error::new(
                error.span(),
                "a path has the names of fields: home.city; an item of a list has no name: lines[].product is of each",
            )
        })?;
        path.push(part(name, input)?);
    }
    Ok(path)
}

/// A name, and the brackets after it.
fn part(name: Ident, input: ParseStream<'_>) -> Result<Part> {
    if !input.peek(syn::token::Bracket) {
        return Ok(Part { name, is_each: false });
    }
    let inside;
    bracketed!(inside in input);
    if !inside.is_empty() {
        return Err(inside.error(format!("one item of a list is in no key: {name}[] stands for each")));
    }
    if !input.peek(Token![.]) {
        return Err(Error::new(
            name.span(),
            format!(
                "a path goes on after the brackets, {name}[].field; the items themselves are `key = {name}, each`"
            ),
        ));
    }
    Ok(Part { name, is_each: true })
}

impl KeyItem {
    pub(crate) fn first(&self) -> &Ident {
        &self.path[0].name
    }

    pub(crate) fn is_path(&self) -> bool {
        self.path.len() > 1
    }

    /// The list whose items its path goes through.
    fn list(&self) -> Option<&Ident> {
        self.path.iter().find(|part| part.is_each).map(|part| &part.name)
    }

    /// As it was written.
    fn shown(&self) -> String {
        let part = |part: &Part| format!("{}{}", part.name, if part.is_each { "[]" } else { "" });
        let path: Vec<String> = self.path.iter().map(part).collect();
        if self.is_descending { format!("desc({})", path.join(".")) } else { path.join(".") }
    }

    /// The types on the way of its path without an `Option`, each with the stored name, that of the field
    /// first.
    fn parts(&self, field: &Field<'_>, duramen: &TokenStream) -> Vec<(TokenStream, TokenStream)> {
        let (written, first) = (&field.written, field.not_null());
        let mut parts = vec![(quote!(#written), quote!(#first))];
        for (before, part) in self.path.iter().zip(&self.path[1..]) {
            let (_, mut kind) = parts[parts.len() - 1].clone();
            if before.is_each {
                kind = quote_spanned!(before.name.span()=> <#kind as #duramen::view::reduce::Each>::Item);
            }
            let number = nested::number_of(&part.name);
            let span = part.name.span();
            let nested = quote_spanned!(span=> <#kind as #duramen::Nested<#number>>);
            parts.push((quote_spanned!(span=> #nested::NAME), quote_spanned!(span=> #nested::Kind)));
        }
        parts
    }

    /// Its type in a document, without an `Option`.
    fn not_null(&self, field: &Field<'_>, duramen: &TokenStream) -> TokenStream {
        self.parts(field, duramen).pop().expect("a path has a field").1
    }

    /// The element in the catalogue's definition.
    pub(crate) fn definition(&self, field: &Field<'_>, duramen: &TokenStream) -> TokenStream {
        let key_field = quote!(#duramen::view::KeyField);
        let descending = self.is_descending.then(|| quote!(.descending()));
        if !self.is_path() {
            let written = &field.written;
            return quote!(#key_field::field(#written) #descending);
        }
        let names = self.parts(field, duramen).into_iter().zip(&self.path).enumerate();
        let texts = names.flat_map(|(index, ((name, _), part))| {
            let dot = (index > 0).then(|| quote!("."));
            let brackets = part.is_each.then(|| quote!("[]"));
            dot.into_iter().chain([name]).chain(brackets)
        });
        quote!(#key_field::path(&[#(#texts),*].concat()) #descending)
    }
}

/// Checks the key of a view.
pub(crate) fn check(view: &ViewAttribute, keys: &[&Field<'_>]) -> Result<()> {
    check_forms(view, keys)?;
    check_lists(view, keys)?;
    check_nulls(view, keys)
}

/// Checks that a path can be written as text, and that no field has a direction of its own.
fn check_forms(view: &ViewAttribute, keys: &[&Field<'_>]) -> Result<()> {
    for (item, field) in view.key.iter().zip(keys) {
        let ident = item.first();
        if item.is_path() && field.written.contains(['.', '[']) {
            let written = &field.written;
            return Err(Error::new(
                ident.span(),
                format!(
                    "{ident} is stored as {written}, which no path can begin with: give it another stored name"
                ),
            ));
        }
        if field.is_reverse() {
            return Err(Error::new(
                ident.span(),
                format!("{ident} is a Reverse: make it the value itself, and write desc({ident})"),
            ));
        }
    }
    Ok(())
}

/// Checks that a list among the key fields is the one with a row for each item.
fn check_lists(view: &ViewAttribute, keys: &[&Field<'_>]) -> Result<()> {
    let last = keys.len() - 1;
    for (index, (item, field)) in view.key.iter().zip(keys).enumerate() {
        let (name, first) = (&view.name, item.first());
        let Some(list) = item.list().or(field.is_list().then_some(first)) else { continue };
        let wrong = |what: String| Err(Error::new(list.span(), format!("{list} is a list: {what}")));
        if item.is_path() && item.list().is_none() {
            let shown = item.shown().replacen(&format!("{first}."), &format!("{first}[]."), 1);
            return wrong(format!("{shown} is the part of each of its items, in a view with `each`"));
        }
        if index < last {
            return wrong(format!("make it the last key field of {name}, and write `each`"));
        }
        if !view.each {
            let all: Vec<String> = view.key.iter().map(KeyItem::shown).collect();
            let all = if let [one] = &all[..] { one.clone() } else { format!("({})", all.join(", ")) };
            return wrong(format!(
                "`each` makes a row for each of its items: view({name}, key = {all}, each)"
            ));
        }
    }
    Ok(())
}

/// Checks that a view with rows for nulls has a key field that can be null.
fn check_nulls(view: &ViewAttribute, keys: &[&Field<'_>]) -> Result<()> {
    if !view.nulls {
        return Ok(());
    }
    let name = &view.name;
    let is_nullable = |(item, field): (&KeyItem, &&Field<'_>)| item.is_path() || field.is_optional();
    if !view.each && !view.key.iter().zip(keys).any(is_nullable) {
        return Err(Error::new(
            name.span(),
            format!("{name} has no key field that can be null: take `nulls` away, or make one an Option"),
        ));
    }
    Ok(())
}

/// The Rust type of a view's key. Without `nulls` a document has no row while a key field is null.
pub(crate) fn kind(view: &ViewAttribute, keys: &[&Field<'_>], duramen: &TokenStream) -> TokenStream {
    let last = keys.len() - 1;
    let one = |(index, (item, field)): (usize, (&KeyItem, &&Field<'_>))| {
        let mut kind = item.not_null(field, duramen);
        let is_each = view.each && index == last;
        if is_each && item.list().is_none() {
            kind = quote!(<#kind as #duramen::view::reduce::Each>::Item);
        }
        // What a path leads through may be absent.
        if view.nulls && (is_each || item.is_path() || field.is_optional()) {
            kind = quote!(::core::option::Option<#kind>);
        }
        if item.is_descending { quote!(::core::cmp::Reverse<#kind>) } else { kind }
    };
    let kinds: Vec<TokenStream> = view.key.iter().zip(keys).enumerate().map(one).collect();
    match &kinds[..] {
        [one] => one.clone(),
        _ => quote!((#(#kinds,)*)),
    }
}
