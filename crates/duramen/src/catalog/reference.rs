//! References between collections: a field whose values are keys of documents of a collection.
//!
//! Owns the definition, its rows in the view that the database keeps for it, and the document that is left
//! when such a field is cleared. Pure functions on bytes; access/references.rs enforces references.

use crate::catalog::forms::{self, is_positional};
use crate::catalog::rows::ViewRows;
use crate::catalog::schema::Schema;
use crate::store::error::{Error, Result};
use crate::value::document::Value;
use crate::value::msgpack::{Reader, Token, begins_with_a_shape, write};
use crate::value::tuple::{Element, Encoder, check_length};
use crate::view::spec::ViewSpec;

/// The maximum number of references of one collection.
pub(crate) const REFERENCES_MAX: usize = 32;

/// What the delete of a document does to the documents that refer to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDelete {
    /// The delete is refused. The default.
    #[default]
    Restrict,
    /// They are deleted in the same transaction, and so on for those that refer to them.
    Cascade,
    /// Their field becomes null; of a list, the item is removed.
    Clear,
}

impl OnDelete {
    /// Every action.
    pub const ALL: [OnDelete; 3] = [OnDelete::Restrict, OnDelete::Cascade, OnDelete::Clear];

    /// Its name, as in `#[references(User, on_delete = cascade)]`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            OnDelete::Restrict => "restrict",
            OnDelete::Cascade => "cascade",
            OnDelete::Clear => "clear",
        }
    }

    /// The action of a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<OnDelete> {
        OnDelete::ALL.into_iter().find(|action| action.name() == name)
    }
}

/// The definition of a reference: the values of a field are keys of documents of a collection.
///
/// A document whose field is null or absent refers to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub(crate) field: String,
    pub(crate) to: String,
    pub(crate) action: OnDelete,
    pub(crate) each: bool,
    /// Whether a type declares it, and so may take it away.
    pub(crate) declared: bool,
    /// How many elements a key of the other collection has; set when the reference is added.
    pub(crate) elements: usize,
    /// The generation of the view that the database keeps for it.
    pub(crate) generation: u64,
    /// Whether every document was checked and has its rows in that view.
    pub(crate) ready: bool,
}

impl Reference {
    /// A reference of this field to the documents of the collection `to`. Deletes of those are refused.
    #[must_use]
    pub fn new(field: impl Into<String>, to: impl Into<String>) -> Reference {
        Reference {
            field: field.into(),
            to: to.into(),
            action: OnDelete::Restrict,
            each: false,
            declared: false,
            elements: 1,
            generation: 0,
            ready: false,
        }
    }

    /// Sets what the delete of a document does to those that refer to it.
    #[must_use]
    pub fn on_delete(self, action: OnDelete) -> Reference {
        Reference { action, ..self }
    }

    /// Marks the field as a list: each of its items is a key.
    #[must_use]
    pub fn each(self) -> Reference {
        Reference { each: true, ..self }
    }

    /// Marks it as declared by a type. For `#[derive(Collection)]`.
    #[doc(hidden)]
    #[must_use]
    pub fn declared(self) -> Reference {
        Reference { declared: true, ..self }
    }

    /// The field that refers.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The collection that it refers to.
    #[must_use]
    pub fn to(&self) -> &str {
        &self.to
    }

    /// What the delete of a document does to those that refer to it.
    #[must_use]
    pub fn action(&self) -> OnDelete {
        self.action
    }

    /// Whether the field is a list of keys.
    #[must_use]
    pub fn is_each(&self) -> bool {
        self.each
    }

    /// Whether every document was checked. Until then new writes are checked.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.ready
    }

    /// Whether two definitions are equal, declared by a type or not.
    pub(crate) fn same_terms(&self, other: &Reference) -> bool {
        self.field == other.field && self.same_rule(other)
    }

    /// Whether two definitions are equal but for the name of the field.
    pub(crate) fn same_rule(&self, other: &Reference) -> bool {
        (&self.to, self.action, self.each) == (&other.to, other.action, other.each)
    }

    /// The view that the database keeps: rows of the keys that documents refer to.
    pub(crate) fn view(&self) -> ViewSpec {
        let spec = ViewSpec::new(self.field.as_str(), [self.field.as_str()]);
        ViewSpec {
            each: self.each,
            of_reference: Some(self.elements),
            generation: self.generation,
            ready: self.ready,
            ..spec
        }
    }
}

/// A collection with a reference to another, in the catalogue entry of the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Referrer {
    /// The collection that refers.
    pub collection: String,
    /// Its field.
    pub field: String,
}

/// The rows of a document under `key` in the view of a reference: the keys that `field` holds, each followed
/// by the document's.
///
/// # Errors
/// `InvalidArgument` for a value that cannot be a key of the other collection; `KeyTooLong`.
pub(crate) fn rows(spec: &ViewSpec, elements: usize, key: &[u8], field: Option<&[u8]>) -> Result<ViewRows> {
    let mut rows = ViewRows::new();
    let Some(field) = field else { return Ok(rows) };
    for value in values(spec.each, Value::from_stored(field)?) {
        let mut row = target_key(&spec.name, elements, &value)?;
        row.extend_from_slice(key);
        check_length(&row).map_err(|error| {
            let message = format!("the reference {}: {}", spec.name, error.message());
            Error::new(error.code(), message)
                .with_hint("the key that is referred to and the document's share the length of one key")
        })?;
        rows.insert(row, Vec::new());
    }
    Ok(rows)
}

/// The values of a field that refer to something.
fn values(each: bool, field: Value) -> Vec<Value> {
    let all = match field {
        Value::List(items) if each => items,
        one => vec![one],
    };
    all.into_iter().filter(|value| *value != Value::Null).collect()
}

/// The key that a value refers to.
fn target_key(field: &str, elements: usize, value: &Value) -> Result<Vec<u8>> {
    let wrong = || {
        let wanted =
            if elements == 1 { "one value".to_owned() } else { format!("a list of {elements} values") };
        let held = value.to_element().map_or_else(|| "a map".to_owned(), |element| element.to_string());
        let message = format!("the field {field} refers to a key, which is {wanted}, and holds {held}");
        Error::invalid(message).with_hint("store the key of the document that is referred to, or null")
    };
    let parts: Vec<Element> = match (elements, value) {
        (1, one) => vec![one.to_element().ok_or_else(wrong)?],
        (_, Value::List(parts)) if parts.len() == elements => {
            parts.iter().map(Value::to_element).collect::<Option<_>>().ok_or_else(wrong)?
        }
        _ => return Err(wrong()),
    };
    let mut key = Vec::with_capacity(32);
    let mut encoder = Encoder::new(&mut key);
    parts.iter().try_for_each(|part| encoder.element(part))?;
    Ok(key)
}

/// A document without the values of a field whose target `is_gone`: null, or a list without these items.
///
/// The rest stays byte for byte.
///
/// # Errors
/// `InvalidArgument` for bytes that are no document.
pub(crate) fn cleared(
    reference: &Reference,
    schema: &Schema,
    document: &[u8],
    is_gone: &dyn Fn(&[u8]) -> bool,
) -> Result<Vec<u8>> {
    let mut named = Vec::new();
    let is_of_shape = begins_with_a_shape(document);
    if is_of_shape {
        forms::name_by_shape(schema.shapes(), document, &mut named)?;
    }
    let document = if is_of_shape { &named } else { document };
    let mut reader = Reader::new(document);
    let named = !is_positional(document);
    let (Token::Map(count) | Token::List(count)) = reader.next()? else {
        return Err(reader.wrong("a document was wanted"));
    };
    let mut out = Vec::with_capacity(document.len());
    if named {
        write::map(&mut out, count)?
    } else {
        write::list(&mut out, count)?
    }
    for index in 0..count {
        let name = if named {
            let name = reader.raw()?;
            out.extend_from_slice(name);
            Reader::new(name).name_bytes()?
        } else {
            schema.positional_fields().get(index).map_or(&[][..], |name| name.as_bytes())
        };
        let value = reader.raw()?;
        if schema.same_field(reference.field.as_bytes(), name) {
            cleared_value(reference, value, is_gone, &mut out)?;
        } else {
            out.extend_from_slice(value);
        }
    }
    Ok(out)
}

fn cleared_value(
    reference: &Reference,
    value: &[u8],
    is_gone: &dyn Fn(&[u8]) -> bool,
    out: &mut Vec<u8>,
) -> Result<()> {
    let refers = |stored: &[u8]| -> Result<bool> {
        let value = Value::from_stored(stored)?;
        if value == Value::Null {
            return Ok(false);
        }
        Ok(target_key(&reference.field, reference.elements, &value).is_ok_and(|key| is_gone(&key)))
    };
    let mut reader = Reader::new(value);
    match reader.next()? {
        Token::List(count) if reference.each => {
            let mut kept = Vec::with_capacity(count);
            for _ in 0..count {
                let item = reader.raw()?;
                if !refers(item)? {
                    kept.push(item);
                }
            }
            write::list(out, kept.len())?;
            kept.iter().for_each(|item| out.extend_from_slice(item));
        }
        _ if refers(value)? => write::null(out),
        _ => out.extend_from_slice(value),
    }
    Ok(())
}
