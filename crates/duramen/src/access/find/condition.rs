//! Conditions of a find: a path into documents, and a test of the value there; and combinations of them.
//!
//! Pure. In a column with a type values compare as elements of keys do. Elsewhere integers and floats compare
//! by their numeric value. A condition means the same on a document and on an index. `text` reads conditions
//! in text.

#[cfg(test)]
mod tests;
mod text;

use std::cmp::Ordering;
use std::fmt;

use super::compare::Wanted;
use super::path::Path;
use super::ranges::ElementRange;
use crate::catalog::schema::{ColumnType, Schema};
use crate::store::error::{Error, Result};
use crate::value::document::{Document, Value};
use crate::value::msgpack::Token;
use crate::value::tuple::Element;

/// A condition on documents.
///
/// It tests a field, or a value inside one: `home.city` is a part of a map, `lines[0].price` an item of a
/// list. `tags[]` means every item: the condition holds if one of them satisfies it. A column whose name has
/// a dot comes before a path.
///
/// In a column with a type values compare as elements of keys do: 0.0 and -0.0 differ. In a column of type
/// [`Any`](ColumnType::Any), and inside of values, integers and floats compare by their numeric value. Values
/// of other different types are unequal and in no order.
///
/// A document without the field has null there. It satisfies `Equal` with null, and `NotEqual` with anything
/// else. It satisfies neither [`Condition::contains`] nor [`Condition::starts_with`]. It satisfies
/// [`Condition::is_in`] only if null is one of the values.
///
/// ```
/// # use duramen::prelude::*;
/// use duramen::find::{Condition, Operator};
///
/// # fn main() -> Result<()> {
/// let flights = Schema::new("flights").key(["id"]).column("delay", ColumnType::Int);
/// let parsed = Condition::parse(&flights, "delay>=60")?;
/// assert_eq!(parsed, Condition::new(&flights, "delay", Operator::GreaterOrEqual, 60)?);
/// assert_eq!(parsed.to_string(), "delay >= 60");
/// let either = Condition::any([parsed, Condition::is_null(&flights, "delay")?]);
/// assert_eq!(either.to_string(), "(delay >= 60 or delay is null)");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition(Test);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Compare { path: Path, operator: Operator, wanted: Wanted },
    In { path: Path, wanted: Vec<Wanted> },
    Contains { path: Path, wanted: Wanted },
    StartsWith { path: Path, text: String },
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

/// How a field compares with the value of a [`Condition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operator {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// The part of an index's order to which a condition restricts it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Restriction {
    /// These values, in order.
    Points(Vec<Element>),
    /// The values in these ranges, in order.
    Ranges(Vec<ElementRange>),
    /// No restriction.
    None,
}

impl Condition {
    /// A comparison from its parts.
    ///
    /// The value must have the type of the field's column, after a lossless conversion: integers become
    /// floats, and RFC 3339 text and dates become times. Null stands for a field that is absent.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a field that the schema does not have, for a value of another type, and
    /// for a map, which has no order.
    pub fn new(
        schema: &Schema,
        field: impl Into<String>,
        operator: Operator,
        value: impl Into<Value>,
    ) -> Result<Condition> {
        let path = Path::of(schema, &field.into())?;
        let wanted = wanted(schema, &path, value.into())?;
        Ok(Condition(Test::Compare { path, operator, wanted }))
    }

    /// Whether the field has one of these values.
    ///
    /// # Errors
    /// As [`Condition::new`].
    pub fn is_in<V: Into<Value>>(
        schema: &Schema,
        field: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Result<Condition> {
        let path = Path::of(schema, &field.into())?;
        let of = |value: V| wanted(schema, &path, value.into());
        let wanted = values.into_iter().map(of).collect::<Result<_>>()?;
        Ok(Condition(Test::In { path, wanted }))
    }

    /// Whether the field is null, or absent.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a field that the schema does not have.
    pub fn is_null(schema: &Schema, field: impl Into<String>) -> Result<Condition> {
        Condition::new(schema, field, Operator::Equal, Value::Null)
    }

    /// Whether the field has a value.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a field that the schema does not have.
    pub fn is_not_null(schema: &Schema, field: impl Into<String>) -> Result<Condition> {
        Condition::new(schema, field, Operator::NotEqual, Value::Null)
    }

    /// Whether a text contains this one, or a list has an item that equals the value.
    ///
    /// # Errors
    /// As [`Condition::new`]; `InvalidArgument` (E0201) also for a column of numbers, bools or times.
    pub fn contains(schema: &Schema, field: impl Into<String>, value: impl Into<Value>) -> Result<Condition> {
        let path = Path::of(schema, &field.into())?;
        check_text(schema, &path, "contains", true)?;
        let wanted = match wanted(schema, &path, value.into())? {
            Wanted::Typed(element) => Wanted::Untyped(vec![element]),
            untyped @ Wanted::Untyped(_) => untyped,
        };
        Ok(Condition(Test::Contains { path, wanted }))
    }

    /// Whether a text begins with this one.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a field that the schema does not have, and for a column that holds no
    /// text.
    pub fn starts_with(
        schema: &Schema,
        field: impl Into<String>,
        text: impl Into<String>,
    ) -> Result<Condition> {
        let path = Path::of(schema, &field.into())?;
        check_text(schema, &path, "starts with", false)?;
        Ok(Condition(Test::StartsWith { path, text: text.into() }))
    }

    /// Whether at least one of the conditions holds; of none, none does.
    #[must_use]
    pub fn any(conditions: impl IntoIterator<Item = Condition>) -> Condition {
        let mut conditions: Vec<Condition> = conditions.into_iter().collect();
        if conditions.len() == 1 { conditions.remove(0) } else { Condition(Test::Any(conditions)) }
    }

    /// Whether all of the conditions hold; of none, all do.
    #[must_use]
    pub fn all(conditions: impl IntoIterator<Item = Condition>) -> Condition {
        // All of all is all: an access path is chosen by the parts.
        let parts = conditions.into_iter().flat_map(|condition| match condition.0 {
            Test::All(parts) => parts,
            test => vec![Condition(test)],
        });
        let mut parts: Vec<Condition> = parts.collect();
        if parts.len() == 1 { parts.remove(0) } else { Condition(Test::All(parts)) }
    }

    /// Whether a document of the schema's collection satisfies the condition.
    ///
    /// The field is found under any name that it has had. Reads no disk; costs O(fields of the document).
    #[must_use]
    pub fn holds(&self, schema: &Schema, document: &Document) -> bool {
        match &self.0 {
            Test::Compare { path, .. }
            | Test::In { path, .. }
            | Test::Contains { path, .. }
            | Test::StartsWith { path, .. } => path.any(schema, document, &mut |value| self.test(value)),
            Test::All(conditions) => conditions.iter().all(|condition| condition.holds(schema, document)),
            Test::Any(conditions) => conditions.iter().any(|condition| condition.holds(schema, document)),
        }
    }

    /// Whether a value at its path satisfies it. Those of several conditions have no path: none does.
    pub(super) fn test(&self, found: &Value) -> bool {
        match (&self.0, found) {
            (Test::Compare { operator, wanted, .. }, _) => operator.holds(wanted.order(found)),
            (Test::In { wanted, .. }, _) => wanted.iter().any(|wanted| wanted.equals(found)),
            (Test::Contains { wanted, .. }, Value::List(items)) => {
                items.iter().any(|item| wanted.equals(item))
            }
            _ => self.test_scalar(&found.token()),
        }
    }

    /// As [`Condition::test`], of a value that is no list or map.
    pub(super) fn test_scalar(&self, found: &Token<'_>) -> bool {
        match (&self.0, found) {
            (Test::Compare { operator, wanted, .. }, _) => operator.holds(wanted.order_of_scalar(found)),
            (Test::In { wanted, .. }, _) => {
                wanted.iter().any(|wanted| wanted.order_of_scalar(found) == Some(Ordering::Equal))
            }
            (Test::Contains { wanted, .. }, Token::Text(found)) => {
                wanted.text().is_some_and(|part| found.contains(part))
            }
            (Test::StartsWith { text, .. }, Token::Text(found)) => found.starts_with(text),
            _ => false,
        }
    }

    /// Calls `told` with each path that the condition tests.
    pub(super) fn paths<'c>(&'c self, told: &mut dyn FnMut(&'c Path)) {
        match &self.0 {
            Test::Compare { path, .. }
            | Test::In { path, .. }
            | Test::Contains { path, .. }
            | Test::StartsWith { path, .. } => told(path),
            Test::All(conditions) | Test::Any(conditions) => {
                conditions.iter().for_each(|condition| condition.paths(told));
            }
        }
    }

    /// Checks that the schema has the fields: the condition may have been made for another collection.
    pub(super) fn check(&self, schema: &Schema) -> Result<()> {
        let mut checked = Ok(());
        self.paths(&mut |path| {
            if checked.is_ok() {
                checked = Path::of(schema, path.text()).map(drop);
            }
        });
        checked
    }

    /// The conditions that must all hold.
    pub(super) fn parts(&self) -> &[Condition] {
        match &self.0 {
            Test::All(conditions) => conditions,
            _ => std::slice::from_ref(self),
        }
    }

    /// The one path that is tested.
    fn path(&self) -> Option<&Path> {
        match &self.0 {
            Test::Compare { path, .. }
            | Test::In { path, .. }
            | Test::Contains { path, .. }
            | Test::StartsWith { path, .. } => Some(path),
            Test::All(_) | Test::Any(_) => None,
        }
    }

    /// The one path that is tested, if it leads to one value.
    pub(super) fn one_path(&self) -> Option<&Path> {
        self.path().filter(|path| !path.is_each())
    }

    /// Whether it fails for every document without the field. An index has rows only for documents with all
    /// of its fields.
    pub(super) fn excludes_null(&self) -> bool {
        match &self.0 {
            Test::Compare { operator, wanted, .. } => (*operator == Operator::NotEqual) == wanted.is_null(),
            Test::In { wanted, .. } => !wanted.iter().any(Wanted::is_null),
            Test::Contains { .. } | Test::StartsWith { .. } => true,
            Test::All(_) | Test::Any(_) => false,
        }
    }

    /// The part to which it restricts an order by the field: exactly the values that satisfy it.
    pub(super) fn restriction(&self) -> Restriction {
        let points = |wanted: &[Wanted]| {
            let mut points: Vec<Element> = wanted.iter().flat_map(Wanted::points).collect();
            points.sort();
            points.dedup();
            Restriction::Points(points)
        };
        match &self.0 {
            Test::Compare { operator: Operator::Equal, wanted, .. } => points(std::slice::from_ref(wanted)),
            Test::Compare { operator, wanted, .. } if *operator != Operator::NotEqual => {
                Restriction::Ranges(wanted.ranges(*operator))
            }
            Test::In { wanted, .. } => points(wanted),
            Test::StartsWith { text, .. } => {
                let from = Element::Text(text.clone());
                let all = ElementRange::of_type(&from);
                let to = after_prefix(text).map_or(all.to, |after| (Element::Text(after), false));
                Restriction::Ranges(vec![ElementRange { from: (from, true), to }])
            }
            Test::Compare { .. } | Test::Contains { .. } | Test::All(_) | Test::Any(_) => Restriction::None,
        }
    }
}

impl Operator {
    fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Operator::Equal => order == Some(Ordering::Equal),
            Operator::NotEqual => order != Some(Ordering::Equal),
            Operator::Less => order == Some(Ordering::Less),
            Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Operator::Greater => order == Some(Ordering::Greater),
            Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

impl fmt::Display for Condition {
    /// Readable form for messages: `delay >= 60`. It cannot always be parsed back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Test::Compare { path, operator, wanted } => match operator {
                Operator::Equal if wanted.elements() == [Element::Null] => {
                    write!(f, "{} is null", path.text())
                }
                Operator::NotEqual if wanted.elements() == [Element::Null] => {
                    write!(f, "{} is not null", path.text())
                }
                _ => write!(f, "{} {operator} {wanted}", path.text()),
            },
            Test::In { path, wanted } => {
                let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
                write!(f, "{} in ({})", path.text(), wanted.join(", "))
            }
            Test::Contains { path, wanted } => write!(f, "{} contains {wanted}", path.text()),
            Test::StartsWith { path, text } => write!(f, "{} starts with {text}", path.text()),
            Test::All(conditions) => joined(f, conditions, " and "),
            Test::Any(conditions) => joined(f, conditions, " or "),
        }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, conditions: &[Condition], word: &str) -> fmt::Result {
    let texts: Vec<String> = conditions.iter().map(ToString::to_string).collect();
    write!(f, "({})", texts.join(word))
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.elements().first().map_or(Ok(()), |element| element.fmt(f))
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operator::Equal => "=",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
        })
    }
}

/// A value to compare with what is at a path.
fn wanted(schema: &Schema, path: &Path, mut value: Value) -> Result<Wanted> {
    let kind = kind_at(schema, path);
    let element = if kind.admit(&mut value) { value.to_element() } else { None };
    let element = element.ok_or_else(|| {
        let (name, found) = (path.text(), value.kind());
        let message = format!("the field {name} is of type {kind}, and cannot be compared with {found}");
        Error::invalid(message)
            .with_hint(format!("{}; '{name} is null' finds documents without it", text::example(kind)))
    })?;
    Ok(if is_typed(schema, path) { Wanted::Typed(element) } else { Wanted::Untyped(vec![element]) })
}

/// Whether the path is a column whose values have one type.
fn is_typed(schema: &Schema, path: &Path) -> bool {
    !matches!(kind_at(schema, path), ColumnType::Any | ColumnType::Unknown)
}

/// The type of the values at a path.
fn kind_at(schema: &Schema, path: &Path) -> ColumnType {
    schema.kind(path.field()).filter(|_| path.is_column()).unwrap_or(ColumnType::Any)
}

/// Refuses a column that can hold no text, and no list if that counts too.
fn check_text(schema: &Schema, path: &Path, what: &str, has_lists: bool) -> Result<()> {
    match kind_at(schema, path) {
        ColumnType::Text | ColumnType::Any | ColumnType::Unknown => Ok(()),
        kind => {
            let lists = if has_lists { " and lists" } else { "" };
            let text = path.text();
            Err(Error::invalid(format!("{text} {what}: the field {text} is of type {kind}"))
                .with_hint(format!("`{what}` is for text{lists}; compare {kind} with = != < <= > >= or in")))
        }
    }
}

/// The smallest text greater than every text with this prefix.
fn after_prefix(prefix: &str) -> Option<String> {
    const SURROGATES_END: char = '\u{e000}';
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        if last < char::MAX {
            text.push(char::from_u32(u32::from(last) + 1).unwrap_or(SURROGATES_END));
            return Some(text);
        }
    }
    None
}
