//! `#[derive(Key)]`: a struct around one element, or an enum without fields, as an element of keys.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, Result};

use crate::attributes::{self, EnumOrder};
use crate::{names, variants};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(&input.generics, "an element of a key has no parameters"));
    }
    let order = attributes::enum_order(&input.attrs)?;
    match (&input.data, order) {
        (Data::Struct(data), None) => wrapper(input, data),
        (Data::Struct(_), Some(_)) => Err(Error::new_spanned(
            &input.ident,
            "a struct has the order of its field: take #[key(...)] away",
        )),
        (Data::Enum(data), Some(EnumOrder::ByName)) => variants::by_name(input, data),
        (Data::Enum(data), Some(EnumOrder::ByNumber)) => Ok(variants::by_number(input, data)),
        (Data::Enum(data), None) => Err(variants::without_order(input, data)?),
        (Data::Union(_), _) => Err(Error::new_spanned(&input.ident, "a union cannot be an element of a key")),
    }
}

fn wrapper(input: &DeriveInput, data: &syn::DataStruct) -> Result<TokenStream> {
    if let Some(path) = names::serde(&input.attrs)?.changes_form.filter(|path| !path.is_ident("transparent"))
    {
        return Err(Error::new_spanned(path, "an element of a key is written by serde as it is in the key"));
    }
    let Fields::Unnamed(fields) = &data.fields else { return Err(one_field(input)) };
    let [field] = &fields.unnamed.iter().collect::<Vec<_>>()[..] else { return Err(one_field(input)) };
    if let Some(path) = names::serde(&field.attrs)?.changes_form {
        return Err(Error::new_spanned(path, "an element of a key is written by serde as it is in the key"));
    }
    let (ident, kind) = (&input.ident, &field.ty);
    let id = is_id(kind).then(|| id_key(ident, kind));
    Ok(quote! {
        const _: () = {
            #id

            impl ::duramen::tuple::AsElement for #ident {
                fn append(
                    &self,
                    encoder: &mut ::duramen::tuple::Encoder<'_>,
                ) -> ::duramen::Result<()> {
                    ::duramen::tuple::AsElement::append(&self.0, encoder)
                }
            }

            impl ::duramen::tuple::OwnedElement for #ident {
                const COLUMN: ::duramen::schema::ColumnType =
                    <#kind as ::duramen::tuple::OwnedElement>::COLUMN;
                const IS_DESCENDING: bool =
                    <#kind as ::duramen::tuple::OwnedElement>::IS_DESCENDING;

                fn from_element(
                    element: ::duramen::tuple::Element,
                ) -> ::duramen::Result<Self> {
                    ::duramen::tuple::OwnedElement::from_element(element).map(#ident)
                }
            }

            ::duramen::key_element!(#ident);
        };
    })
}

/// Whether the type is one of those that `push` assigns. A macro sees its name only.
fn is_id(kind: &syn::Type) -> bool {
    matches!(kind, syn::Type::Path(path) if ["u64", "i64", "u32"].iter().any(|id| path.path.is_ident(id)))
}

/// The struct around an assigned id.
fn id_key(ident: &syn::Ident, kind: &syn::Type) -> TokenStream {
    quote! {
        impl ::duramen::IdKey for #ident {
            fn from_id(id: u64) -> ::core::option::Option<Self> {
                <#kind as ::duramen::IdKey>::from_id(id).map(#ident)
            }

            fn to_id(self) -> ::core::option::Option<u64> {
                ::duramen::IdKey::to_id(self.0)
            }
        }
    }
}

fn one_field(input: &DeriveInput) -> Error {
    Error::new_spanned(
        &input.ident,
        "an element of a key is a struct around one, `struct OrderId(u64);`, or an enum without fields",
    )
}
