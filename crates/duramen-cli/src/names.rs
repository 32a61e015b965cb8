//! Names of fields in lists: one CSV record, on the command line and in the shell alike.
//!
//! Owns both directions: what a list means, and how a list with these names is written.

use std::borrow::Cow;

use crate::failure::Failure;
use crate::keys::record;

/// The names in one list, at least one: `a,b`, or `'"a,b",c'` for a name with a comma.
#[derive(Debug, Clone)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// Parses a list. What follows the quotes belongs to the name: `"a,b":desc`.
    pub(crate) fn parse(text: &str) -> Result<Names, String> {
        let names = record("the list", text).map_err(|failure| match failure {
            Failure::Said(said) => format!("{}; {}", said.message, said.hint),
            _ => "it is no CSV record".to_owned(),
        })?;
        match names.iter().any(String::is_empty) {
            true => Err("a column has a name".to_owned()),
            false => Ok(Names(names)),
        }
    }
}

impl<'n> IntoIterator for &'n Names {
    type Item = &'n String;
    type IntoIter = std::slice::Iter<'n, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// A name as an item of a list.
pub(crate) fn list_item(name: &str) -> Cow<'_, str> {
    if name.contains([',', '"', '\n', '\r']) {
        return Cow::Owned(format!("\"{}\"", name.replace('"', "\"\"")));
    }
    Cow::Borrowed(name)
}

/// Names as a list.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    names.into_iter().map(|name| list_item(name)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    //! A list that is split elsewhere names other fields.
    use super::*;

    #[test]
    fn a_list_is_read_as_it_is_written() {
        for (text, names) in [
            ("a,b", &["a", "b"][..]),
            ("\"a,b\",c", &["a,b", "c"]),
            ("\"a,b\":desc", &["a,b:desc"]),
            ("\"5\"\" pipe\"", &["5\" pipe"]),
            ("a b,lines[0].price", &["a b", "lines[0].price"]),
        ] {
            let found = Names::parse(text).unwrap();
            assert!(found.into_iter().eq(names), "{text}");
        }
        let names = ["a,b".to_owned(), "c\"".to_owned(), "d".to_owned()];
        assert!(Names::parse(&listed(&names)).unwrap().into_iter().eq(&names));
        for (text, problem) in [("", "has a name"), ("a,", "has a name"), ("\"a,b", "never closed")] {
            assert!(Names::parse(text).unwrap_err().contains(problem), "{text}");
        }
    }
}
