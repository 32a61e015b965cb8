//! Rights: what a user may do, and with what.
//!
//! Nothing is denied by a rule: what is not granted is refused.

use std::fmt;
use std::str::FromStr;

use duramen::error::{Error, Result};

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Right {
    /// Reads.
    Reader,
    /// Reads and writes: conditions and errors of writes tell what is there anyway.
    Writer,
    /// Creates, changes and drops collections and their views.
    Schema,
    /// Registers and moves consumers of changes.
    Consumer,
    /// Sees how the database fares: names and figures, and keys of what it may read.
    Operator,
    /// Copies the database: with it everything is read, users included.
    Backup,
    /// Everything, users included.
    Admin,
}

/// Kinds of what has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Named {
    /// A collection, with its views.
    Collection,
    /// A namespace of key-values.
    Kv,
    /// A namespace of blobs.
    Blob,
    /// A tree of bytes.
    Bytes,
    /// A consumer of changes.
    Consumer,
}

impl Right {
    /// All of them.
    pub const ALL: [Right; 7] = [
        Right::Reader,
        Right::Writer,
        Right::Schema,
        Right::Consumer,
        Right::Operator,
        Right::Backup,
        Right::Admin,
    ];

    /// Its name: `reader`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Right::Reader => "reader",
            Right::Writer => "writer",
            Right::Schema => "schema",
            Right::Consumer => "consumer",
            Right::Operator => "operator",
            Right::Backup => "backup",
            Right::Admin => "admin",
        }
    }

    /// Whether one who has this right has the other, too.
    const fn includes(self, other: Right) -> bool {
        match self {
            Right::Admin => true,
            Right::Writer => matches!(other, Right::Writer | Right::Reader),
            _ => self as u8 == other as u8,
        }
    }

    /// Whether it can be granted on this kind of names.
    const fn is_of(self, named: Named) -> bool {
        match self {
            Right::Reader | Right::Writer => !matches!(named, Named::Consumer),
            Right::Schema => matches!(named, Named::Collection),
            Right::Consumer => matches!(named, Named::Consumer),
            Right::Operator | Right::Backup | Right::Admin => false,
        }
    }
}

impl Named {
    const ALL: [Named; 5] = [Named::Collection, Named::Kv, Named::Blob, Named::Bytes, Named::Consumer];

    /// As in a grant: `collection`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Named::Collection => "collection",
            Named::Kv => "kv",
            Named::Blob => "blob",
            Named::Bytes => "bytes",
            Named::Consumer => "consumer",
        }
    }
}

/// A right on everything, or on what has a name.
///
/// As text: `reader`, `writer=collection:orders`, `reader=kv:sessions-*` with a star at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    right: Right,
    on: Option<On>,
}

/// What a grant is on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct On {
    named: Named,
    /// Of a beginning, without its star.
    name: String,
    is_beginning: bool,
}

impl On {
    fn has(&self, named: Named, name: &str) -> bool {
        let has_name = if self.is_beginning { name.starts_with(&self.name) } else { name == self.name };
        self.named == named && has_name
    }
}

impl Grant {
    /// Whether it allows something on everything, or on what has a name.
    fn allows(&self, right: Right, of: Option<(Named, &str)>) -> bool {
        self.right.includes(right)
            && match (&self.on, of) {
                (None, _) => true,
                (Some(on), Some((named, name))) => on.has(named, name),
                (Some(_), None) => false,
            }
    }

    /// Whether it allows anything on something of a name.
    fn is_on(&self, named: Named, name: &str) -> bool {
        match &self.on {
            None => self.right == Right::Admin || self.right.is_of(named),
            Some(on) => on.has(named, name),
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.right.name())?;
        let Some(On { named, name, is_beginning }) = &self.on else { return Ok(()) };
        write!(f, "={}:{name}{}", named.name(), if *is_beginning { "*" } else { "" })
    }
}

impl FromStr for Grant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Grant> {
        let wrong = |what: String| {
            Err(Error::invalid(what).with_hint(
                "write RIGHT, or RIGHT=KIND:NAME with a star at the end of NAME for all that begin so, such as `writer=collection:orders*`",
            ))
        };
        let (right, on) = text.split_once('=').map_or((text, None), |(right, on)| (right, Some(on)));
        let Some(right) = Right::ALL.into_iter().find(|known| known.name() == right) else {
            let all = Right::ALL.map(Right::name).join(", ");
            return wrong(format!("there is no right {right:?}: there are {all}"));
        };
        let Some(on) = on else { return Ok(Grant { right, on: None }) };
        let parsed = on.split_once(':');
        let named = parsed.and_then(|(kind, _)| Named::ALL.into_iter().find(|known| known.name() == kind));
        let (Some((_, name)), Some(named)) = (parsed, named) else {
            let all = Named::ALL.map(Named::name).join(", ");
            return wrong(format!("{on:?} names nothing that a right is granted on: kinds are {all}"));
        };
        if !right.is_of(named) {
            return wrong(format!("the right {} is not granted on a {}", right.name(), named.name()));
        }
        let (name, is_beginning) = name.strip_suffix('*').map_or((name, false), |name| (name, true));
        if name.contains('*') || (name.is_empty() && !is_beginning) {
            return wrong(format!("{on:?} has no name, or a star that is not at its end"));
        }
        Ok(Grant { right, on: Some(On { named, name: name.to_owned(), is_beginning }) })
    }
}

/// Whether one of a user's grants allows something on everything, or on what has a name.
pub(super) fn allow(grants: &[Grant], right: Right, of: Option<(Named, &str)>) -> bool {
    grants.iter().any(|grant| grant.allows(right, of))
}

/// Whether one of a user's grants allows something on anything.
pub(super) fn allow_any(grants: &[Grant], right: Right) -> bool {
    grants.iter().any(|grant| grant.right.includes(right))
}

/// Whether one of a user's grants allows anything on something of a name.
pub(super) fn are_on(grants: &[Grant], named: Named, name: &str) -> bool {
    grants.iter().any(|grant| grant.is_on(named, name))
}

#[cfg(test)]
mod tests {
    //! A grant that is read as a wider one lets strangers in.
    use super::*;

    fn grant(text: &str) -> Grant {
        text.parse().expect("a grant")
    }

    #[test]
    fn a_grant_allows_what_it_says_and_nothing_else() {
        let names = [(Named::Collection, "orders"), (Named::Collection, "orders-old"), (Named::Kv, "orders")];
        let allowed = |text: &str| {
            let of_name =
                |right: Right| names.map(|of| if grant(text).allows(right, Some(of)) { '+' } else { '-' });
            let all = |right: Right| if grant(text).allows(right, None) { '+' } else { '-' };
            Right::ALL.map(|right| of_name(right).iter().chain([&all(right)]).collect::<String>()).join(" ")
        };
        assert_eq!(allowed("reader"), "++++ ---- ---- ---- ---- ---- ----");
        assert_eq!(allowed("writer"), "++++ ++++ ---- ---- ---- ---- ----");
        assert_eq!(allowed("admin"), "++++ ++++ ++++ ++++ ++++ ++++ ++++");
        assert_eq!(allowed("operator"), "---- ---- ---- ---- ++++ ---- ----");
        assert_eq!(allowed("backup"), "---- ---- ---- ---- ---- ++++ ----");
        assert_eq!(allowed("reader=collection:orders"), "+--- ---- ---- ---- ---- ---- ----");
        assert_eq!(allowed("writer=collection:orders*"), "++-- ++-- ---- ---- ---- ---- ----");
        assert_eq!(allowed("reader=kv:*"), "--+- ---- ---- ---- ---- ---- ----");
        assert_eq!(allowed("schema=collection:order"), "---- ---- ---- ---- ---- ---- ----");
        assert_eq!(allowed("schema=collection:order*"), "---- ---- ++-- ---- ---- ---- ----");
        assert_eq!(allowed("consumer=consumer:orders"), "---- ---- ---- ---- ---- ---- ----");
    }

    #[test]
    fn what_is_no_grant_is_refused_and_what_is_one_is_printed_as_it_was() {
        for text in ["reader", "admin", "writer=collection:a*", "reader=blob:*", "consumer=consumer:x:y"] {
            assert_eq!(grant(text).to_string(), text);
        }
        for text in [
            "",
            "root",
            "Reader",
            "reader=",
            "reader=orders",
            "reader=collection:",
            "reader=table:a",
            "reader=collection:a*b",
            "reader=collection:**",
            "operator=kv:a",
            "backup=kv:a",
            "admin=kv:a",
            "schema=kv:a",
            "consumer=kv:a",
            "reader=consumer:a",
            "reader ",
        ] {
            assert!(text.parse::<Grant>().is_err(), "{text:?}");
        }
    }
}
