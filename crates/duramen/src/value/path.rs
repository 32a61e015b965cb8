//! Paths to values inside documents: `carrier`, `home.city`, `lines[0].price`, `tags[]`.
//!
//! Pure: what a text means, and which values it leads to. Queries and views share it, so a condition and the
//! key of a view mean the same.

use crate::store::error::{Error, Result};
use crate::value::document::Value;

/// A field of documents, or a value inside one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    /// As it was written.
    text: String,
    /// How many bytes of the text are the field of the document.
    field_bytes: usize,
    steps: Vec<Step>,
}

/// A step from a value to one inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// A field of a map; of a list the item of that number.
    Name(String),
    /// An item of a list.
    Item(usize),
    /// Every item of a list.
    Each,
}

impl Path {
    /// A whole field, whatever characters its name has.
    pub(crate) fn of_field(name: impl Into<String>) -> Path {
        let text = name.into();
        Path { field_bytes: text.len(), text, steps: Vec::new() }
    }

    /// # Errors
    /// `InvalidArgument` for a text that is no path.
    pub(crate) fn parse(text: &str) -> Result<Path> {
        let field_bytes = text.find(['.', '[']).unwrap_or(text.len());
        let mut path = Path { text: text.to_owned(), field_bytes, steps: Vec::new() };
        let wrong = || {
            Error::invalid(format!("{text:?} names no field"))
                .with_hint("write a field, a part of it (a.b), an item of a list (a[0]) or every item (a[])")
        };
        let mut rest = &text[field_bytes..];
        if field_bytes == 0 {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let (step, after) = match rest.strip_prefix('.') {
                Some(named) => {
                    let (name, after) = named.split_at(named.find(['.', '[']).unwrap_or(named.len()));
                    (if name.is_empty() { None } else { Some(Step::Name(name.to_owned())) }, after)
                }
                None => match rest.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
                    Some(("", after)) => (Some(Step::Each), after),
                    Some((number, after)) => (number.parse().ok().map(Step::Item), after),
                    None => (None, ""),
                },
            };
            path.steps.push(step.ok_or_else(wrong)?);
            rest = after;
        }
        Ok(path)
    }

    /// The path as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The field of the document.
    pub(crate) fn field(&self) -> &str {
        &self.text[..self.field_bytes]
    }

    /// Whether it is a whole field.
    pub(crate) fn is_field(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether it may lead to several values.
    pub(crate) fn is_each(&self) -> bool {
        self.steps.contains(&Step::Each)
    }

    /// Whether both lead to the same values, however they are written.
    pub(crate) fn leads_as(&self, other: &Path) -> bool {
        self.field() == other.field() && self.steps == other.steps
    }

    /// Whether a value at the path satisfies `test`, from the value of the field on.
    ///
    /// An absent value is null; a path through every item of a list leads to as many values as there are
    /// items, and to none where there is no list.
    pub(crate) fn any_inside<'d>(&self, field: &'d Value, test: &mut dyn FnMut(&'d Value) -> bool) -> bool {
        any(field, &self.steps, test)
    }

    /// Every value at the path, from the value of the field on, as [`Path::any_inside`] finds them.
    pub(crate) fn all_inside<'d>(&self, field: &'d Value) -> Vec<&'d Value> {
        let mut found = Vec::new();
        self.any_inside(field, &mut |value| {
            found.push(value);
            false
        });
        found
    }

    /// The only value at a path without [`Path::is_each`], from the value of the field on; null if it is
    /// absent.
    pub(crate) fn inside<'d>(&self, field: &'d Value) -> &'d Value {
        let mut found = &Value::Null;
        self.any_inside(field, &mut |value| {
            found = value;
            true
        });
        found
    }
}

fn any<'d>(value: &'d Value, steps: &[Step], test: &mut dyn FnMut(&'d Value) -> bool) -> bool {
    let Some((step, rest)) = steps.split_first() else { return test(value) };
    let inside = match (step, value) {
        (Step::Each, Value::List(items)) => return items.iter().any(|item| any(item, rest, test)),
        (Step::Each, _) => return false,
        (Step::Name(name), Value::Map(fields)) => fields.get(name),
        (Step::Name(name), Value::List(items)) => name.parse::<usize>().ok().and_then(|at| items.get(at)),
        (Step::Item(at), Value::List(items)) => items.get(*at),
        _ => None,
    };
    any(inside.unwrap_or(&Value::Null), rest, test)
}
