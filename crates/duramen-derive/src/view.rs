//! `view(...)` in `#[collection(...)]`: a type that stands for a view, and what the catalogue keeps of it.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, Result, Token, Visibility, parenthesized};

use crate::field::Field;
use crate::names;

/// What one `view(...)` says.
pub(crate) struct ViewAttribute {
    name: Ident,
    key: Vec<Ident>,
    value: Option<Ident>,
    reduce: Vec<Reduction>,
    each: bool,
    unique: bool,
}

/// `Sum`, or `Sum(cents)`.
struct Reduction {
    kind: Ident,
    of: Option<Ident>,
}

const REDUCTIONS: [&str; 5] = ["Count", "Sum", "Mean", "Min", "Max"];

impl Parse for ViewAttribute {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: Ident = input.parse()?;
        let mut view = ViewAttribute {
            name,
            key: Vec::new(),
            value: None,
            reduce: Vec::new(),
            each: false,
            unique: false,
        };
        while input.peek(Token![,]) {
            let _: Token![,] = input.parse()?;
            if input.is_empty() {
                break;
            }
            view.item(input)?;
        }
        if view.key.is_empty() {
            return Err(Error::new(
                view.name.span(),
                format!(
                    "the view {0} needs a key: view({0}, key = field) or key = (field, field)",
                    view.name
                ),
            ));
        }
        Ok(view)
    }
}

impl ViewAttribute {
    /// The type that stands for the view.
    pub(crate) fn name(&self) -> &Ident {
        &self.name
    }

    fn item(&mut self, input: ParseStream<'_>) -> Result<()> {
        let word: Ident = input.parse()?;
        match word.to_string().as_str() {
            "each" => self.each = true,
            "unique" => self.unique = true,
            "key" => {
                let _: Token![=] = input.parse()?;
                self.key = one_or_more(input)?;
            }
            "value" => {
                let _: Token![=] = input.parse()?;
                self.value = Some(input.parse()?);
            }
            "reduce" => {
                let _: Token![=] = input.parse()?;
                self.reduce = one_or_more(input)?;
            }
            _ => {
                return Err(Error::new(
                    word.span(),
                    "unknown: after its name a view takes `key = ...`, `value = ...`, `reduce = ...`, `each` and `unique`",
                ));
            }
        }
        Ok(())
    }
}

/// `a`, or `(a, b)`.
fn one_or_more<T: Parse>(input: ParseStream<'_>) -> Result<Vec<T>> {
    if !input.peek(syn::token::Paren) {
        return Ok(vec![input.parse()?]);
    }
    let inside;
    parenthesized!(inside in input);
    Ok(Punctuated::<T, Token![,]>::parse_terminated(&inside)?.into_iter().collect())
}

impl Parse for Reduction {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let kind: Ident = input.parse()?;
        if !REDUCTIONS.iter().any(|known| kind == known) {
            return Err(Error::new(
                kind.span(),
                format!("unknown: a view reduces by {}", REDUCTIONS.join(", ")),
            ));
        }
        let of = if input.peek(syn::token::Paren) {
            let inside;
            parenthesized!(inside in input);
            Some(inside.parse()?)
        } else {
            None
        };
        Ok(Reduction { kind, of })
    }
}

/// The types of the views, and what they say.
pub(crate) fn derive(
    collection: &Ident,
    visibility: &Visibility,
    views: &[ViewAttribute],
    fields: &[Field<'_>],
    duramen: &TokenStream,
) -> Result<(TokenStream, TokenStream)> {
    for (index, view) in views.iter().enumerate() {
        let name = |view: &ViewAttribute| names::snake_case(&view.name.to_string());
        if views[..index].iter().any(|other| name(other) == name(view)) {
            return Err(Error::new(view.name.span(), format!("another view is called {}, too", name(view))));
        }
    }
    let mut types = TokenStream::new();
    let mut impls = TokenStream::new();
    for view in views {
        let (name, shown) = (&view.name, format!("The view `{}` of [`{collection}`].", view.name));
        types.extend(quote! {
            #[doc = #shown]
            #visibility struct #name;
        });
        impls.extend(one(collection, view, fields, duramen)?);
    }
    Ok((types, impls))
}

fn one(
    collection: &Ident,
    view: &ViewAttribute,
    fields: &[Field<'_>],
    duramen: &TokenStream,
) -> Result<TokenStream> {
    let ident = &view.name;
    let name = names::snake_case(&ident.to_string());
    let keys = view.key.iter().map(|name| field(fields, name)).collect::<Result<Vec<_>>>()?;
    let key_names = keys.iter().map(|field| &field.written);
    let key_type = key_type(view, &keys, duramen);
    let Reduced { values, kept, kinds, summed } = reduced(view, fields, duramen)?;
    let each = view.each.then(|| quote!(.each()));
    let unique = view.unique.then(|| quote!(.unique()));
    Ok(quote! {
        const _: fn() = || {
            fn is_summed<T: #duramen::view::reduce::Summed>() {}
            #(is_summed::<#summed>();)*
        };

        impl #duramen::View for #ident {
            type Collection = #collection;
            type Key = #key_type;
            type Reduce = (#(#kinds,)*);
            const NAME: &'static str = #name;

            fn spec() -> #duramen::ViewSpec {
                #duramen::ViewSpec::new(#name, [#(#key_names),*])
                    .values::<&str>([#(#values),*])
                    .reduce([#(#kept),*])
                    #each
                    #unique
            }
        }
    })
}

/// The Rust type of a view's key. A field that may be null has a row only when it is not.
fn key_type(view: &ViewAttribute, keys: &[&Field<'_>], duramen: &TokenStream) -> TokenStream {
    let last = keys.len() - 1;
    let kinds: Vec<TokenStream> = keys
        .iter()
        .enumerate()
        .map(|(index, field)| {
            let kind = field.not_null();
            if view.each && index == last {
                quote!(<#kind as #duramen::view::reduce::Each>::Item)
            } else {
                quote!(#kind)
            }
        })
        .collect();
    match &kinds[..] {
        [one] => one.clone(),
        _ => quote!((#(#kinds,)*)),
    }
}

/// The reductions of a view: the fields they take, what the catalogue keeps, and their types.
struct Reduced {
    values: Vec<String>,
    kept: Vec<TokenStream>,
    kinds: Vec<TokenStream>,
    /// Types of the fields that are summed.
    summed: Vec<TokenStream>,
}

fn reduced(view: &ViewAttribute, fields: &[Field<'_>], duramen: &TokenStream) -> Result<Reduced> {
    if view.reduce.len() > 8 {
        return Err(Error::new(
            view.reduce[8].kind.span(),
            "a view has at most 8 reductions: make another view",
        ));
    }
    let mut all = Reduced { values: Vec::new(), kept: Vec::new(), kinds: Vec::new(), summed: Vec::new() };
    let reduce = quote!(#duramen::view::reduce);
    for reduction in &view.reduce {
        let kind = &reduction.kind;
        if kind == "Count" {
            all.kinds.push(quote!(#reduce::Count));
            continue;
        }
        let of = reduction.of.as_ref().or(view.value.as_ref()).ok_or_else(|| {
            Error::new(
                kind.span(),
                format!("{kind} needs a field: {kind}(field), or value = field for all of them"),
            )
        })?;
        let field = field(fields, of)?;
        let index = all.values.iter().position(|value| *value == field.written).unwrap_or_else(|| {
            all.values.push(field.written.clone());
            all.values.len() - 1
        });
        let not_null = field.not_null();
        let stored = if kind == "Mean" { format_ident!("Sum") } else { kind.clone() };
        all.kept.push(quote!(#duramen::view::Reduce::#stored(#index)));
        let takes_type = kind == "Min" || kind == "Max";
        if !takes_type {
            all.summed.push(quote!(#not_null));
        }
        all.kinds.push(if takes_type { quote!(#reduce::#kind<#not_null>) } else { quote!(#reduce::#kind) });
    }
    if all.kinds.is_empty() {
        all.kinds.push(quote!(#reduce::Count));
    }
    Ok(all)
}

fn field<'f, 'a>(fields: &'f [Field<'a>], name: &Ident) -> Result<&'f Field<'a>> {
    let found = fields.iter().find(|field| field.ident == name && field.absent.is_none());
    if found.is_some_and(|field| !field.plain) {
        return Err(Error::new(
            name.span(),
            format!("a view takes fields as they are stored, and {name} is written by a function of yours"),
        ));
    }
    found.ok_or_else(|| {
        let all: Vec<String> = fields.iter().map(|field| field.ident.to_string()).collect();
        Error::new(
            name.span(),
            format!("there is no field {name} that is written; there are {}", all.join(", ")),
        )
    })
}
