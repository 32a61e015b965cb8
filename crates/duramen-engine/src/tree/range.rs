//! A range of keys, half-open.

/// Keys from `from` (included) to `to` (excluded); without `to`, to the end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct KeyRange {
    /// The first key that belongs to the range.
    pub from: Vec<u8>,
    /// The first key after it that does not; `None` for no end.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    #[must_use]
    pub fn all() -> KeyRange {
        KeyRange::default()
    }

    /// Keys from `from` to before `to`.
    #[must_use]
    pub fn between(from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>) -> KeyRange {
        KeyRange { from: from.into(), to: Some(to.into()) }
    }

    /// Keys that start with these bytes.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> KeyRange {
        let mut to = prefix.to_vec();
        while let Some(last) = to.pop() {
            if last < u8::MAX {
                to.push(last + 1);
                return KeyRange { from: prefix.to_vec(), to: Some(to) };
            }
        }
        KeyRange { from: prefix.to_vec(), to: None }
    }

    /// Exactly this key.
    #[must_use]
    pub fn point(key: &[u8]) -> KeyRange {
        KeyRange { from: key.to_vec(), to: Some([key, &[0]].concat()) }
    }

    /// Whether the range contains `key`.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.from.as_slice() && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// Whether the range can contain no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.to.as_deref().is_some_and(|to| to <= self.from.as_slice())
    }
}
