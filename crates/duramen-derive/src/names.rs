//! Names: of a collection from its struct, of a field as serde writes it.

#[cfg(test)]
mod tests;

use syn::{Attribute, Error, LitStr, Result, Token};

/// The effect of serde's attributes on names, as far as keys need it.
#[derive(Default)]
pub(crate) struct SerdeNames {
    /// `rename` of a field.
    pub(crate) rename: Option<String>,
    /// `rename_all` of a struct or an enum, for writing.
    pub(crate) rename_all: Option<LitStr>,
    /// The same for reading.
    pub(crate) rename_all_read: Option<LitStr>,
    /// The type as which a value is written.
    pub(crate) into: Option<LitStr>,
    /// The type from which a value is read, if that may fail.
    pub(crate) try_from: Option<LitStr>,
    /// An attribute besides these two that changes the form.
    pub(crate) other_form: Option<syn::Path>,
    /// An attribute that changes how, or whether, a field is written.
    pub(crate) changes_form: Option<syn::Path>,
    /// An attribute that moves the field elsewhere, or omits it.
    pub(crate) absent: Option<syn::Path>,
    /// An attribute because of which the field is not always written.
    pub(crate) sometimes: Option<syn::Path>,
    /// Further names under which a field is read.
    pub(crate) aliases: Vec<String>,
    /// Whether a field, or every field of a struct, may be absent when reading.
    pub(crate) default: bool,
    /// Whether a function makes the value of an absent field.
    pub(crate) default_by_function: bool,
    /// An attribute that changes the form of the whole struct.
    pub(crate) reshapes: Option<syn::Path>,
}

/// Attributes that do not change the written form.
const HARMLESS: [&str; 3] = ["default", "bound", "deny_unknown_fields"];

/// Attributes that remove a field, or its name, from documents.
const ABSENT: [&str; 3] = ["skip", "skip_serializing", "flatten"];

/// Attributes of a struct that is not written as a map of its fields.
const RESHAPES: [&str; 8] =
    ["into", "from", "try_from", "transparent", "tag", "content", "untagged", "remote"];

pub(crate) fn serde(attributes: &[Attribute]) -> Result<SerdeNames> {
    let mut found = SerdeNames::default();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("rename") {
                let [written, read] = names(&meta)?.map(|name| name.map(|name| name.value()));
                found.aliases.extend(read.filter(|read| written.as_ref() != Some(read)));
                found.rename = written.or(found.rename.take());
                return Ok(());
            }
            if meta.path.is_ident("rename_all") {
                let [written, read] = names(&meta)?;
                found.rename_all = written.or(found.rename_all.take());
                found.rename_all_read = read.or(found.rename_all_read.take());
                return Ok(());
            }
            if meta.path.is_ident("alias") {
                found.aliases.push(meta.value()?.parse::<LitStr>()?.value());
                return Ok(());
            }
            found.default |= meta.path.is_ident("default") || meta.path.is_ident("skip_deserializing");
            found.default_by_function |= meta.path.is_ident("default") && meta.input.peek(Token![=]);
            if !HARMLESS.iter().any(|known| meta.path.is_ident(known)) {
                found.changes_form = Some(meta.path.clone());
            }
            if ABSENT.iter().any(|known| meta.path.is_ident(known)) {
                found.absent = Some(meta.path.clone());
            }
            if meta.path.is_ident("skip_serializing_if") {
                found.sometimes = Some(meta.path.clone());
            }
            if RESHAPES.iter().any(|known| meta.path.is_ident(known)) {
                found.reshapes = Some(meta.path.clone());
            }
            if meta.path.is_ident("into") {
                found.into = Some(meta.value()?.parse()?);
                return Ok(());
            }
            if meta.path.is_ident("try_from") {
                found.try_from = Some(meta.value()?.parse()?);
                return Ok(());
            }
            if !HARMLESS.iter().any(|known| meta.path.is_ident(known)) {
                found.other_form = Some(meta.path.clone());
            }
            skip_value(&meta)
        })?;
    }
    Ok(found)
}

/// `= "name"`, or `(serialize = "name", deserialize = "name")`: the written name and the read name.
fn names(meta: &syn::meta::ParseNestedMeta<'_>) -> Result<[Option<LitStr>; 2]> {
    if meta.input.peek(Token![=]) {
        let name: LitStr = meta.value()?.parse()?;
        return Ok([Some(name.clone()), Some(name)]);
    }
    let mut names = [None, None];
    meta.parse_nested_meta(|side| {
        let value: LitStr = side.value()?.parse()?;
        names[usize::from(!side.path.is_ident("serialize"))] = Some(value);
        Ok(())
    })?;
    Ok(names)
}

fn skip_value(meta: &syn::meta::ParseNestedMeta<'_>) -> Result<()> {
    if meta.input.peek(Token![=]) {
        let _: syn::Expr = meta.value()?.parse()?;
    } else if meta.input.peek(syn::token::Paren) {
        let inside;
        syn::parenthesized!(inside in meta.input);
        let _: proc_macro2::TokenStream = inside.parse()?;
    }
    Ok(())
}

/// `SalesOrder` as `sales_order`.
pub(crate) fn snake_case(name: &str) -> String {
    let mut out = String::new();
    let letters: Vec<char> = name.chars().collect();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| letters[before]);
        let after = letters.get(index + 1);
        let begins_word = letter.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_numeric()
                    || after.is_some_and(|after| after.is_lowercase())
            });
        if begins_word && !out.ends_with('_') {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// A field's name under serde's `rename_all`.
pub(crate) fn renamed(field: &str, rule: &LitStr) -> Result<String> {
    let words: Vec<&str> = field.split('_').filter(|word| !word.is_empty()).collect();
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters
            .next()
            .map_or(String::new(), |first| [first.to_ascii_uppercase()].into_iter().chain(letters).collect())
    };
    let pascal = || words.iter().map(|word| capital(word)).collect::<String>();
    Ok(match rule.value().as_str() {
        "lowercase" | "snake_case" => field.to_owned(),
        "UPPERCASE" | "SCREAMING_SNAKE_CASE" => field.to_ascii_uppercase(),
        "PascalCase" => pascal(),
        "camelCase" => {
            let pascal = pascal();
            let mut letters = pascal.chars();
            letters.next().map_or(String::new(), |first| {
                [first.to_ascii_lowercase()].into_iter().chain(letters).collect()
            })
        }
        "kebab-case" => field.replace('_', "-"),
        "SCREAMING-KEBAB-CASE" => field.to_ascii_uppercase().replace('_', "-"),
        other => return Err(Error::new(rule.span(), format!("{other} is no rule of serde's rename_all"))),
    })
}

/// A variant's name under serde's `rename_all`.
pub(crate) fn renamed_variant(variant: &str, rule: &LitStr) -> Result<String> {
    let snake = || {
        let mut out = String::new();
        for (index, letter) in variant.char_indices() {
            if index > 0 && letter.is_uppercase() {
                out.push('_');
            }
            out.push(letter.to_ascii_lowercase());
        }
        out
    };
    Ok(match rule.value().as_str() {
        "PascalCase" => variant.to_owned(),
        "lowercase" => variant.to_ascii_lowercase(),
        "UPPERCASE" => variant.to_ascii_uppercase(),
        "camelCase" => {
            let mut letters = variant.chars();
            letters.next().map_or(String::new(), |first| {
                [first.to_ascii_lowercase()].into_iter().chain(letters).collect()
            })
        }
        "snake_case" => snake(),
        "SCREAMING_SNAKE_CASE" => snake().to_ascii_uppercase(),
        "kebab-case" => snake().replace('_', "-"),
        "SCREAMING-KEBAB-CASE" => snake().to_ascii_uppercase().replace('_', "-"),
        other => return Err(Error::new(rule.span(), format!("{other} is no rule of serde's rename_all"))),
    })
}
