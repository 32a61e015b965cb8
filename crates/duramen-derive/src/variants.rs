//! An enum without fields as an element of keys: by the names of its variants, or by their numbers.
//!
//! Owns the agreement with serde: the key of a document and its field hold the same name or number, so that
//! views can be made from stored bytes, without the type.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DataEnum, DeriveInput, Error, Expr, ExprLit, Fields, Ident, Lit, LitStr, Result, UnOp};

use crate::names;

/// The integer types that may hold the numbers, with their ranges.
const NUMBERS: [(&str, i128, i128); 8] = [
    ("u8", 0, u8::MAX as i128),
    ("u16", 0, u16::MAX as i128),
    ("u32", 0, u32::MAX as i128),
    ("u64", 0, u64::MAX as i128),
    ("i8", i8::MIN as i128, i8::MAX as i128),
    ("i16", i16::MIN as i128, i16::MAX as i128),
    ("i32", i32::MIN as i128, i32::MAX as i128),
    ("i64", i64::MIN as i128, i64::MAX as i128),
];

/// The error of an enum whose type has not chosen an order.
pub(crate) fn without_order(input: &DeriveInput, data: &DataEnum) -> Result<Error> {
    let mut names: Vec<String> = named(input, data)?.into_iter().map(|(_, name)| name).collect();
    names.sort();
    Ok(Error::new_spanned(
        &input.ident,
        format!(
            "choose how this enum is stored and ordered: write `#[key(by_name)]` above it to store the names, in the \
             order of the alphabet ({names}); or `#[key(by_number)]` and `#[serde(into = \"u8\", try_from = \"u8\")]` \
             to store numbers that you give (`{first} = 1`), in their order",
            first = data.variants[0].ident,
            names = names.join(", "),
        ),
    ))
}

/// `#[key(by_name)]`: the element is the text that serde writes.
pub(crate) fn by_name(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream> {
    if let Some(path) = names::serde(&input.attrs)?.changes_form {
        return Err(Error::new_spanned(path, "an element of a key is written by serde as it is in the key"));
    }
    let (variants, texts): (Vec<&Ident>, Vec<String>) = named(input, data)?.into_iter().unzip();
    let ident = &input.ident;
    let expected = texts.join(", ");
    Ok(quote! {
        const _: () = {
            impl ::duramen::tuple::AsElement for #ident {
                fn append(
                    &self,
                    encoder: &mut ::duramen::tuple::Encoder<'_>,
                ) -> ::duramen::Result<()> {
                    encoder.text(match self {
                        #(#ident::#variants => #texts,)*
                    });
                    ::core::result::Result::Ok(())
                }
            }

            impl ::duramen::tuple::OwnedElement for #ident {
                const COLUMN: ::duramen::schema::ColumnType = ::duramen::schema::ColumnType::Text;

                fn from_element(
                    element: ::duramen::tuple::Element,
                ) -> ::duramen::Result<Self> {
                    if let ::duramen::tuple::Element::Text(text) = &element {
                        match text.as_str() {
                            #(#texts => return ::core::result::Result::Ok(#ident::#variants),)*
                            _ => {}
                        }
                    }
                    ::core::result::Result::Err(::duramen::tuple::unexpected(&element, #expected))
                }
            }

            impl ::duramen::tuple::EnumElement for #ident {
                const FORM: ::duramen::tuple::EnumForm = ::duramen::tuple::EnumForm::Name;
            }

            impl ::core::convert::From<#ident> for ::duramen::Value {
                fn from(value: #ident) -> ::duramen::Value {
                    ::core::convert::From::from(match value {
                        #(#ident::#variants => #texts,)*
                    })
                }
            }

            ::duramen::key_element!(#ident);
        };
    })
}

/// `#[key(by_number)]`: the element is the number, and serde writes the same through `into` and `try_from`.
///
/// After an error the conversions are there all the same, so that the compiler does not report them missing.
pub(crate) fn by_number(input: &DeriveInput, data: &DataEnum) -> TokenStream {
    numbers_of(input, data).unwrap_or_else(|error| {
        let (error, ident) = (error.into_compile_error(), &input.ident);
        let serde = names::serde(&input.attrs).unwrap_or_default();
        let known = |kind: &LitStr| NUMBERS.iter().any(|(name, ..)| kind.value() == *name);
        let kind = |kind: &LitStr| Ident::new(&kind.value(), kind.span());
        let into = serde.into.filter(known).map(|into| {
            let kind = kind(&into);
            quote! {
                impl ::core::convert::From<#ident> for #kind {
                    fn from(_: #ident) -> #kind { ::core::unreachable!() }
                }
            }
        });
        let try_from = serde.try_from.filter(known).map(|try_from| {
            let kind = kind(&try_from);
            quote! {
                impl ::core::convert::TryFrom<#kind> for #ident {
                    type Error = ::duramen::Error;
                    fn try_from(_: #kind) -> ::duramen::Result<Self> { ::core::unreachable!() }
                }
            }
        });
        quote!(#error #into #try_from)
    })
}

fn numbers_of(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream> {
    let numbers = numbered(input, data)?;
    let kind = number_type(input, &numbers)?;
    let (ident, kind_name) = (&input.ident, kind.to_string());
    let variants: Vec<&Ident> = numbers.iter().map(|(variant, _)| *variant).collect();
    let literals: Vec<TokenStream> = numbers.iter().map(|(_, number)| literal(*number, &kind_name)).collect();
    let conversions = conversions(input, &numbers, &kind, &literals);
    Ok(quote! {
        const _: () = {
            #conversions

            impl ::duramen::tuple::AsElement for #ident {
                fn append(
                    &self,
                    encoder: &mut ::duramen::tuple::Encoder<'_>,
                ) -> ::duramen::Result<()> {
                    let number: #kind = match self {
                        #(#ident::#variants => #literals,)*
                    };
                    ::duramen::tuple::AsElement::append(&number, encoder)
                }
            }

            impl ::duramen::tuple::OwnedElement for #ident {
                const COLUMN: ::duramen::schema::ColumnType = ::duramen::schema::ColumnType::Int;

                fn from_element(
                    element: ::duramen::tuple::Element,
                ) -> ::duramen::Result<Self> {
                    let number: #kind = ::duramen::tuple::OwnedElement::from_element(element)?;
                    ::core::convert::TryFrom::try_from(number)
                }
            }

            impl ::duramen::tuple::EnumElement for #ident {
                const FORM: ::duramen::tuple::EnumForm = ::duramen::tuple::EnumForm::Number(#kind_name);
            }

            impl ::core::convert::From<#ident> for ::duramen::Value {
                fn from(value: #ident) -> ::duramen::Value {
                    let number: #kind = ::core::convert::From::from(value);
                    ::core::convert::From::from(number)
                }
            }

            ::duramen::key_element!(#ident);
        };
    })
}

/// The enum as its number and back, which serde uses as well.
fn conversions(
    input: &DeriveInput,
    numbers: &[(&Ident, i128)],
    kind: &Ident,
    literals: &[TokenStream],
) -> TokenStream {
    let ident = &input.ident;
    let name = ident.to_string();
    let variants = numbers.iter().map(|(variant, _)| *variant).collect::<Vec<&Ident>>();
    let all: Vec<String> = numbers.iter().map(|(variant, number)| format!("{variant} = {number}")).collect();
    let expected = all.join(", ");
    quote! {
        impl ::core::convert::From<#ident> for #kind {
            fn from(value: #ident) -> #kind {
                match value {
                    #(#ident::#variants => #literals,)*
                }
            }
        }

        impl ::core::convert::TryFrom<#kind> for #ident {
            type Error = ::duramen::Error;

            fn try_from(number: #kind) -> ::duramen::Result<Self> {
                #[allow(unreachable_patterns, reason = "every number may be taken")]
                match number {
                    #(#literals => ::core::result::Result::Ok(#ident::#variants),)*
                    _ => ::core::result::Result::Err(::duramen::tuple::unknown_number(
                        #name,
                        ::core::convert::From::from(number),
                        #expected,
                    )),
                }
            }
        }
    }
}

/// The variants, and the names that serde writes for them.
fn named<'d>(input: &DeriveInput, data: &'d DataEnum) -> Result<Vec<(&'d Ident, String)>> {
    check_variants(input, data)?;
    let all = names::serde(&input.attrs)?;
    if let Some(rule) = all.rename_all.as_ref().or(all.rename_all_read.as_ref())
        && all.rename_all.as_ref().map(LitStr::value) != all.rename_all_read.as_ref().map(LitStr::value)
    {
        return Err(Error::new(rule.span(), "a variant in a key has one name, for writing and for reading"));
    }
    let mut found = Vec::new();
    for variant in &data.variants {
        let serde = names::serde(&variant.attrs)?;
        if let Some(path) = serde.changes_form {
            return Err(Error::new_spanned(path, "a variant in a key is stored by its name: remove this"));
        }
        if !serde.aliases.is_empty() {
            return Err(Error::new_spanned(
                variant,
                "a variant in a key has one name: what is stored under another one would not be found",
            ));
        }
        let own = variant.ident.to_string().trim_start_matches("r#").to_owned();
        let name = match (serde.rename, &all.rename_all) {
            (Some(name), _) => name,
            (None, Some(rule)) => names::renamed_variant(&own, rule)?,
            (None, None) => own,
        };
        found.push((&variant.ident, name));
    }
    Ok(found)
}

/// The variants and their numbers, which the source must give.
fn numbered<'d>(input: &DeriveInput, data: &'d DataEnum) -> Result<Vec<(&'d Ident, i128)>> {
    check_variants(input, data)?;
    let mut found: Vec<(&Ident, i128)> = Vec::new();
    for variant in &data.variants {
        let ident = &variant.ident;
        let serde = names::serde(&variant.attrs)?;
        if serde.rename.is_some() || !serde.aliases.is_empty() || serde.changes_form.is_some() {
            return Err(Error::new_spanned(
                variant,
                "a variant by number is stored as its number, without a name: take #[serde(...)] away",
            ));
        }
        let Some((_, number)) = &variant.discriminant else {
            let next = found.iter().map(|(_, number)| number + 1).max().unwrap_or(1);
            return Err(Error::new_spanned(
                ident,
                format!(
                    "give this variant its number, which is stored: `{ident} = {next}`; else a variant added before it \
                     would change it"
                ),
            ));
        };
        let number = integer(number).ok_or_else(|| {
            Error::new_spanned(
                number,
                format!("write the number itself: `{ident} = 1`; it is what is stored"),
            )
        })?;
        found.push((ident, number));
    }
    Ok(found)
}

fn check_variants(input: &DeriveInput, data: &DataEnum) -> Result<()> {
    if data.variants.is_empty() {
        return Err(Error::new_spanned(&input.ident, "an enum without variants has no value to store"));
    }
    match data.variants.iter().find(|variant| !matches!(variant.fields, Fields::Unit)) {
        Some(variant) => Err(Error::new_spanned(
            variant,
            "a variant in a key has no fields: it is stored as its name or number",
        )),
        None => Ok(()),
    }
}

/// The integer type that serde writes, which must hold every number.
fn number_type(input: &DeriveInput, numbers: &[(&Ident, i128)]) -> Result<Ident> {
    let serde = names::serde(&input.attrs)?;
    let fits = |min: i128, max: i128| numbers.iter().all(|(_, number)| (min..=max).contains(number));
    let best = NUMBERS.iter().find(|(_, min, max)| fits(*min, *max)).map(|(name, ..)| *name);
    let best = best.ok_or_else(|| {
        Error::new_spanned(&input.ident, "the numbers of an enum in a key fit in one integer of 64 bits")
    })?;
    if let Some(path) = serde.other_form {
        return Err(Error::new_spanned(path, "an enum by number is stored as its number: take this away"));
    }
    let (Some(into), Some(try_from)) = (&serde.into, &serde.try_from) else {
        return Err(Error::new_spanned(
            &input.ident,
            format!(
                "write #[serde(into = \"{best}\", try_from = \"{best}\")] above this enum: documents then hold the \
                 numbers, as keys do; `Key` makes both conversions"
            ),
        ));
    };
    if into.value() != try_from.value() {
        return Err(Error::new(
            try_from.span(),
            format!("read what is written: try_from = {:?}", into.value()),
        ));
    }
    let Some((name, min, max)) = NUMBERS.iter().find(|(name, ..)| into.value() == *name) else {
        return Err(Error::new(into.span(), format!("the numbers are stored as an integer: write {best:?}")));
    };
    if !fits(*min, *max) {
        return Err(Error::new(into.span(), format!("{name} does not hold every number: write {best:?}")));
    }
    Ok(Ident::new(name, into.span()))
}

/// The value of `3` or `-3`.
fn integer(expression: &Expr) -> Option<i128> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse().ok(),
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => integer(&unary.expr).map(|number| -number),
        Expr::Group(group) => integer(&group.expr),
        Expr::Paren(paren) => integer(&paren.expr),
        _ => None,
    }
}

/// A number of this type as source.
fn literal(number: i128, kind: &str) -> TokenStream {
    format!("{number}{kind}").parse().expect("a number and its type are tokens")
}

#[cfg(test)]
mod tests {
    //! The key written for a document now must equal the key under which it is stored.
    use syn::{DeriveInput, parse_quote};

    use crate::key::derive;

    #[track_caller]
    fn check(is_taken: bool, input: DeriveInput) {
        let made = derive(&input).map(|tokens| tokens.to_string());
        assert_eq!(made.is_ok_and(|made| !made.contains("compile_error")), is_taken);
    }

    #[test]
    fn a_variant_has_one_name() {
        check(
            true,
            parse_quote!(
                #[key(by_name)]
                enum Colour {
                    #[serde(rename = "crimson")]
                    Red,
                    Blue,
                }
            ),
        );
        check(
            false,
            parse_quote!(
                #[key(by_name)]
                enum Colour {
                    #[serde(alias = "red")]
                    Crimson,
                    Blue,
                }
            ),
        );
        check(
            false,
            parse_quote!(
                #[key(by_name)]
                enum Colour {
                    #[serde(rename = "crimson", alias = "red")]
                    Red,
                }
            ),
        );
        check(
            false,
            parse_quote!(
                #[key(by_name)]
                enum Colour {
                    #[serde(rename(serialize = "red", deserialize = "crimson"))]
                    Red,
                }
            ),
        );
        check(
            false,
            parse_quote!(
                #[key(by_name)]
                #[serde(rename_all(serialize = "snake_case"))]
                enum Colour {
                    Red,
                }
            ),
        );
    }

    // A number that does not fit, or that serde writes otherwise, would be another one on disk.
    #[test]
    fn numbers_are_as_serde_writes_them() {
        check(
            true,
            parse_quote!(
                #[key(by_number)]
                #[serde(into = "i8", try_from = "i8")]
                enum Level {
                    Low = -1,
                    High = 0x10,
                }
            ),
        );
        check(
            false,
            parse_quote!(
                #[key(by_number)]
                #[serde(into = "u8", try_from = "u8")]
                enum Level {
                    Low = -1,
                }
            ),
        );
        check(
            false,
            parse_quote!(
                #[key(by_number)]
                #[serde(into = "u8", try_from = "u8")]
                enum Level {
                    High = 256,
                }
            ),
        );
        check(
            false,
            parse_quote!(
                #[key(by_number)]
                #[serde(into = "u8", try_from = "u16")]
                enum Level {
                    Low = 1,
                }
            ),
        );
        check(
            false,
            parse_quote!(
                #[key(by_number)]
                #[serde(into = "u8", try_from = "u8")]
                enum Level {
                    #[serde(rename = "low")]
                    Low = 1,
                }
            ),
        );
        check(
            false,
            parse_quote!(
                #[key(by_number)]
                #[serde(into = "u8", try_from = "u8", untagged)]
                enum Level {
                    Low = 1,
                }
            ),
        );
    }
}
