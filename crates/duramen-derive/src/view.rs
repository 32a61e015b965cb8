//! Expands `view(...)` in `#[collection(...)]` into a type that stands for the view, and into its definition,
//! which the catalogue stores.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitInt, Result, Token, Type, Visibility, parenthesized};

use crate::field::Field;
use crate::names;
use crate::view_key::{self, KeyItem};

/// The contents of one `view(...)`.
pub(crate) struct ViewAttribute {
    pub(crate) name: Ident,
    pub(crate) key: Vec<KeyItem>,
    value: Option<Ident>,
    reduce: Vec<Reduction>,
    pub(crate) each: bool,
    unique: bool,
    pub(crate) nulls: bool,
}

/// `Sum`, or `Sum(cents)`, or `TopK(5, cents)`, or `With(Mine, cents)`.
struct Reduction {
    kind: Ident,
    /// The argument before the field.
    told: Argument,
    of: Option<Ident>,
}

enum Argument {
    Nothing,
    /// The number of values.
    Count(LitInt),
    /// The type of the code.
    Code(Box<Type>),
}

const REDUCTIONS: [&str; 10] =
    ["Count", "Sum", "Mean", "Min", "Max", "TopK", "BottomK", "Distinct", "Quantiles", "With"];

/// The maximum number of values that `TopK` and `BottomK` keep; the database has the same limit.
const TOP_MAX: usize = 32;

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
            nulls: false,
        };
        while input.peek(Token![,]) {
            let _: Token![,] = input.parse()?;
            if input.is_empty() {
                break;
            }
            view.item(input)?;
        }
        if view.key.is_empty() && !input.is_empty() {
            return Err(input.error("a comma is missing before this: view(Name, key = field)"));
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
    /// The type that represents the view.
    pub(crate) fn name(&self) -> &Ident {
        &self.name
    }

    /// A part of a field in its key.
    pub(crate) fn path(&self) -> Option<&Ident> {
        self.key.iter().find(|item| item.is_path()).map(KeyItem::first)
    }

    fn item(&mut self, input: ParseStream<'_>) -> Result<()> {
        let word: Ident = input.parse()?;
        match word.to_string().as_str() {
            "each" => self.each = true,
            "unique" => self.unique = true,
            "nulls" => self.nulls = true,
            "key" => {
                let _: Token![=] = input.parse()?;
                self.key = one_or_more(input)?;
                if self.key.is_empty() {
                    return Err(Error::new(
                        word.span(),
                        "a view needs a field in its key: for a sum over all documents take any, such as `key = id`, and \
                         call `reduce` without a range",
                    ));
                }
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
                    "unknown: after its name a view takes `key = ...`, `value = ...`, `reduce = ...`, `each`, `unique` and `nulls`",
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
        let mut reduction = Reduction { told: Argument::Nothing, of: None, kind };
        match reduction.kind.to_string().as_str() {
            "TopK" | "BottomK" => reduction.top(input)?,
            "With" => reduction.with(input)?,
            _ if input.peek(syn::token::Paren) => {
                let inside;
                parenthesized!(inside in input);
                reduction.of = Some(inside.parse()?);
            }
            _ => {}
        }
        Ok(reduction)
    }
}

impl Reduction {
    /// `(5)`, or `(5, cents)`.
    fn top(&mut self, input: ParseStream<'_>) -> Result<()> {
        let kind = &self.kind;
        let wrong = |span| {
            Error::new(span, format!("{kind} needs to know how many: {kind}(5, field), from 1 to {TOP_MAX}"))
        };
        if !input.peek(syn::token::Paren) {
            return Err(wrong(kind.span()));
        }
        let inside;
        parenthesized!(inside in input);
        let count: LitInt = inside.parse().map_err(|error| wrong(error.span()))?;
        if !count.base10_parse().is_ok_and(|count: usize| (1..=TOP_MAX).contains(&count)) {
            return Err(wrong(count.span()));
        }
        self.told = Argument::Count(count);
        self.of = after_comma(&inside)?;
        Ok(())
    }

    /// `(Mine)`, or `(Mine, cents)`.
    fn with(&mut self, input: ParseStream<'_>) -> Result<()> {
        if !input.peek(syn::token::Paren) {
            let what = "With needs a type that implements Monoid: With(Mine, field)";
            return Err(Error::new(self.kind.span(), what));
        }
        let inside;
        parenthesized!(inside in input);
        self.told = Argument::Code(Box::new(inside.parse()?));
        self.of = after_comma(&inside)?;
        Ok(())
    }
}

impl Reduction {
    /// An example with a field.
    fn example(&self) -> String {
        match &self.told {
            Argument::Nothing => format!("{}(field)", self.kind),
            Argument::Count(count) => format!("{}({count}, field)", self.kind),
            Argument::Code(code) => format!("{}({}, field)", self.kind, quote!(#code)),
        }
    }

    /// Adds the reduction over a value of this type.
    fn over(&self, field: &TokenStream, index: usize, duramen: &TokenStream, all: &mut Reduced) {
        let (kind, reduce) = (&self.kind, quote!(#duramen::view::reduce));
        let (kept, is) = match &self.told {
            Argument::Count(count) => (quote!(#kind(#index, #count)), quote!(#reduce::#kind<#field, #count>)),
            Argument::Code(code) => {
                all.asserts.push(quote!(is_taken_by::<#code, #field>()));
                (quote!(code::<#code>(#index)), quote!(#reduce::With<#code>))
            }
            Argument::Nothing if kind == "Min" || kind == "Max" => {
                (quote!(#kind(#index)), quote!(#reduce::#kind<#field>))
            }
            Argument::Nothing => {
                match kind.to_string().as_str() {
                    "Quantiles" => all.asserts.push(quote!(is_measured::<#field>())),
                    "Sum" | "Mean" => all.asserts.push(quote!(is_summed::<#field>())),
                    _ => {}
                }
                let stored = if kind == "Mean" { format_ident!("Sum") } else { kind.clone() };
                (quote!(#stored(#index)), quote!(#reduce::#kind))
            }
        };
        all.kept.push(quote!(#duramen::view::Reduce::#kept));
        all.kinds.push(is);
    }
}

/// The field at the end, if there is one.
fn after_comma(inside: ParseStream<'_>) -> Result<Option<Ident>> {
    if inside.is_empty() {
        return Ok(None);
    }
    let _: Token![,] = inside.parse()?;
    if inside.is_empty() {
        return Ok(None);
    }
    inside.parse().map(Some)
}

/// The types of the views, and their definitions.
pub(crate) fn derive(
    collection: &Ident,
    visibility: &Visibility,
    views: &[ViewAttribute],
    fields: &[Field<'_>],
    duramen: &TokenStream,
) -> Result<(TokenStream, TokenStream)> {
    for (index, view) in views.iter().enumerate() {
        if view.name == *collection {
            return Err(Error::new(
                view.name.span(),
                format!(
                    "a view is a type of its own, and {collection} is the collection: give it another name, such as {collection}By.."
                ),
            ));
        }
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
    let keys = view.key.iter().map(|item| field(fields, item.first())).collect::<Result<Vec<_>>>()?;
    view_key::check(view, &keys)?;
    let key_fields = view.key.iter().zip(&keys).map(|(item, field)| item.definition(field, duramen));
    let key_type = view_key::kind(view, &keys, duramen);
    let Reduced { values, kept, kinds, asserts } = reduced(view, fields, duramen)?;
    let each = view.each.then(|| quote!(.each()));
    let unique = view.unique.then(|| quote!(.unique()));
    let nulls = view.nulls.then(|| quote!(.nulls()));
    Ok(quote! {
        const _: fn() = || {
            fn is_summed<T: #duramen::view::reduce::Summed>() {}
            fn is_measured<T: #duramen::view::reduce::Measured>() {}
            fn is_taken_by<M: #duramen::view::Monoid, T: #duramen::view::reduce::TakenBy<M>>() {}
            #(#asserts;)*
        };

        impl #duramen::View for #ident {
            type Collection = #collection;
            type Key = #key_type;
            type Reduce = (#(#kinds,)*);
            const NAME: &'static str = #name;

            fn spec() -> #duramen::ViewSpec {
                #duramen::ViewSpec::new(#name, [#(#key_fields),*])
                    .values::<&str>([#(#values),*])
                    .reduce([#(#kept),*])
                    #each
                    #unique
                    #nulls
            }
        }
    })
}

/// The reductions of a view: their fields, the form in the catalogue, and their types.
struct Reduced {
    values: Vec<String>,
    kept: Vec<TokenStream>,
    kinds: Vec<TokenStream>,
    /// Requirements on the types of the fields.
    asserts: Vec<TokenStream>,
}

fn reduced(view: &ViewAttribute, fields: &[Field<'_>], duramen: &TokenStream) -> Result<Reduced> {
    if view.reduce.len() > 8 {
        return Err(Error::new(
            view.reduce[8].kind.span(),
            "a view has at most 8 reductions: make another view",
        ));
    }
    let mut all = Reduced { values: Vec::new(), kept: Vec::new(), kinds: Vec::new(), asserts: Vec::new() };
    for reduction in &view.reduce {
        let kind = &reduction.kind;
        if kind == "Count" {
            all.kinds.push(quote!(#duramen::view::reduce::Count));
            continue;
        }
        let of = reduction.of.as_ref().or(view.value.as_ref()).ok_or_else(|| {
            Error::new(
                kind.span(),
                format!("{kind} needs a field: {}, or value = field for all of them", reduction.example()),
            )
        })?;
        let field = field(fields, of)?;
        let index = all.values.iter().position(|value| *value == field.written).unwrap_or_else(|| {
            all.values.push(field.written.clone());
            all.values.len() - 1
        });
        let not_null = field.not_null();
        reduction.over(&quote!(#not_null), index, duramen, &mut all);
    }
    if all.kinds.is_empty() {
        all.kinds.push(quote!(#duramen::view::reduce::Count));
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
            format!("there is no field {name} that is written: write one of {}", all.join(", ")),
        )
    })
}
