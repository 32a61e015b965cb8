//! Positions in the feed that programs store outside of the database.
//!
//! A sequence alone means another commit after an older state was restored. So the position names the
//! database, too: a backup that was restored, and the result of a repair, have an identity of their own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::store::error::{Code, Error, Result};
use crate::store::{CommitSeq, DatabaseId};

/// A position in the change feed of one database, for a program that stores it somewhere else.
///
/// [`Db::feed_position`](crate::Db::feed_position) returns one, and
/// [`Changes::resume`](crate::Changes::resume) continues from it. It is text: `Display` and `FromStr`, and
/// with serde a string.
///
/// ```
/// # use duramen::prelude::*;
/// use duramen::FeedPosition;
/// # #[derive(Debug, Serialize, Deserialize, Collection)]
/// # struct Order { #[key] id: u64 }
/// # fn main() -> Result<()> {
/// # let db = Db::in_memory()?;
/// let mut position = db.feed_position();
/// db.put(&Order { id: 1 })?;
/// for change in db.changes::<Order>().resume(position) {
///     position = position.at(change?.seq);
/// }
/// let stored = position.to_string();
/// assert_eq!(stored.parse::<FeedPosition>()?, position);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct FeedPosition {
    /// The database whose commits are counted.
    pub database: DatabaseId,
    /// Everything up to this commit was handled.
    pub seq: CommitSeq,
}

impl FeedPosition {
    /// The position after another commit of the same database. Use the last commit whose changes were all
    /// handled.
    #[must_use]
    pub fn at(self, seq: CommitSeq) -> FeedPosition {
        FeedPosition { seq, ..self }
    }

    /// Fails if this is not a position of the database `now`.
    pub(crate) fn check(self, now: DatabaseId) -> Result<()> {
        if self.database == now {
            return Ok(());
        }
        let message = format!(
            "the position {self} is not of this database, which is {now}: it was restored, repaired or replaced"
        );
        Err(Error::new(Code::FeedGap, message).with_hint(COPY_FIRST))
    }
}

/// The advice where changes are missing that the reader needs.
pub(crate) const COPY_FIRST: &str =
    "begin anew: first copy, then follow (the recipe of that name in duramen::cookbook)";

impl fmt::Display for FeedPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.database, self.seq)
    }
}

impl FromStr for FeedPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<FeedPosition> {
        let parsed = text.split_once(':').and_then(|(database, seq)| {
            let is_id = database.len() == 32 && database.bytes().all(|byte| byte.is_ascii_hexdigit());
            let database = is_id.then(|| u128::from_str_radix(database, 16).ok()).flatten()?;
            Some(FeedPosition { database: DatabaseId(database), seq: CommitSeq(seq.parse().ok()?) })
        });
        parsed.ok_or_else(|| {
            Error::invalid(format!("{text:?} is no position in a change feed")).with_hint(
                "it is what `FeedPosition::to_string` wrote: 32 hexadecimal digits, a colon, a number",
            )
        })
    }
}

impl From<FeedPosition> for String {
    fn from(position: FeedPosition) -> String {
        position.to_string()
    }
}

impl TryFrom<String> for FeedPosition {
    type Error = Error;

    fn try_from(text: String) -> Result<FeedPosition> {
        text.parse()
    }
}
