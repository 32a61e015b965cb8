//! The engines of this build that can store a shop, each in its own file.

mod duramen;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "remote")]
mod remote;
#[cfg(feature = "sqlite")]
mod sqlite;
mod typed;

use super::shop::Entry;
use crate::engine::Result;

/// All of them, ours first.
pub(super) fn all() -> Vec<Entry> {
    vec![
        duramen::ENTRY,
        typed::ENTRY,
        #[cfg(feature = "remote")]
        remote::ENTRY,
        #[cfg(feature = "sqlite")]
        sqlite::ENTRY,
        #[cfg(feature = "postgres")]
        postgres::VIEW,
        #[cfg(feature = "postgres")]
        postgres::TABLE,
    ]
}

/// The named engines, or all without names. `postgres` names both of its forms.
///
/// # Errors
/// A name that this build does not know.
pub(super) fn named(names: &[String]) -> Result<Vec<Entry>> {
    if names.is_empty() {
        return Ok(all());
    }
    let mut found = Vec::new();
    for name in names {
        let is_meant = |entry: &Entry| {
            entry.name == name || entry.name.split_once('-').is_some_and(|(family, _)| family == name)
        };
        let before = found.len();
        found.extend(all().into_iter().filter(is_meant));
        if found.len() == before {
            return Err(format!("commerce has no engine {name} in this build").into());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
