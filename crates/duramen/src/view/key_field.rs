//! An element of a view's key: a field or a part of one, ascending or descending.

use std::fmt;

use crate::store::error::{Error, Result};
use crate::value::path::Path;

/// An element of the key of a view.
///
/// Text stands for a whole field, ascending: `ViewSpec::new("by_city", ["city"])`. A name with a dot is then
/// that of a field.
///
/// ```
/// use duramen::view::{KeyField, ViewSpec};
///
/// let newest = ViewSpec::new("newest", [KeyField::path("home.city"), KeyField::field("at").descending()]);
/// let shown: Vec<String> = newest.key_fields().iter().map(ToString::to_string).collect();
/// assert_eq!(shown, ["home.city", "at:desc"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyField {
    path: Path,
    /// Whether the text was given as a path; [`KeyField::validate`] says if it is none.
    is_path: bool,
    is_descending: bool,
}

impl KeyField {
    /// A whole field, whatever characters its name has.
    #[must_use]
    pub fn field(name: impl Into<String>) -> KeyField {
        KeyField { path: Path::of_field(name), is_path: false, is_descending: false }
    }

    /// A value inside a field, as queries name it: `home.city`, `lines[0].price`. Without a dot or bracket it
    /// is a field.
    ///
    /// A path through an absent or null part is null. With [`ViewSpec::each`](crate::ViewSpec::each) the last
    /// element may lead through every item of a list, `lines[].product`: a document has a row for each.
    ///
    /// A view with a text that is no path is refused.
    #[must_use]
    pub fn path(path: &str) -> KeyField {
        match Path::parse(path) {
            Ok(path) => KeyField { is_path: !path.is_field(), path, is_descending: false },
            Err(_) => KeyField { is_path: true, ..KeyField::field(path) },
        }
    }

    /// The same value in the opposite order: the largest first, and null last.
    #[must_use]
    pub fn descending(self) -> KeyField {
        KeyField { is_descending: true, ..self }
    }

    /// The field or path as it was written.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.text()
    }

    /// Whether it is a part of a field.
    #[must_use]
    pub fn is_path(&self) -> bool {
        self.is_path
    }

    /// Whether the largest value comes first.
    #[must_use]
    pub fn is_descending(&self) -> bool {
        self.is_descending
    }

    /// The field of the document.
    pub(crate) fn own_field(&self) -> &str {
        self.path.field()
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.path
    }

    /// # Errors
    /// `InvalidArgument` for a text that is no path, and for one that leads to several values in a view that
    /// has no row for each.
    pub(crate) fn validate(&self, has_rows_for_items: bool) -> Result<()> {
        if !self.is_path {
            return Ok(());
        }
        if Path::parse(self.name())?.is_each() && !has_rows_for_items {
            let message = format!("{} leads to several values, and an element of a key is one", self.name());
            return Err(Error::invalid(message).with_hint(
                "make it the last element, and use `each` (--each) for a row for each of the values",
            ));
        }
        Ok(())
    }
}

impl From<&str> for KeyField {
    fn from(name: &str) -> KeyField {
        KeyField::field(name)
    }
}

impl From<String> for KeyField {
    fn from(name: String) -> KeyField {
        KeyField::field(name)
    }
}

impl From<&String> for KeyField {
    fn from(name: &String) -> KeyField {
        KeyField::field(name)
    }
}

impl fmt::Display for KeyField {
    /// As the command line takes it: `home.city`, `at:desc`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name(), if self.is_descending { ":desc" } else { "" })
    }
}
