//! Every way to fail, each saying what the caller can do about it.

use std::fmt;
use std::io;
use std::path::Path;

use crate::ids::CommitSeq;

/// The result of everything in Duramen.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. [`Error::kind`] says what to do, [`Error::code`] names it, [`Error::hint`] helps.
#[derive(Debug, Clone)]
pub struct Error {
    code: Code,
    message: String,
    hint: Option<String>,
    goes_on_after: Option<CommitSeq>,
}

/// What a caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Another transaction changed what this one read: run it again.
    Conflict,
    /// The call is wrong: fix it.
    Invalid,
    /// There is no room on the disk: nothing was changed, make room.
    Full,
    /// The transaction may or may not survive: reopen and look before repeating it.
    InDoubt,
    /// Bytes on disk are not what was written: restore a copy, or recover what is whole.
    Corrupt,
    /// A sync failed earlier and nothing is acknowledged any more: reopen.
    Poisoned,
    /// Another process holds the database.
    Locked,
    /// The snapshot was ended to free its space or memory: take a new one.
    Expired,
    /// What was named is not there.
    NotFound,
    /// The operating system refused: the message says what.
    Io,
}

macro_rules! codes {
    ($($name:ident = $number:literal, $kind:ident, $summary:literal;)*) => {
        /// The stable number of an error, `E0101` and so on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $summary] $name = $number,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// What a caller can do about it.
            #[must_use]
            pub fn kind(self) -> ErrorKind {
                match self { $(Code::$name => ErrorKind::$kind,)* }
            }

            /// One sentence about it.
            #[must_use]
            pub fn summary(self) -> &'static str {
                match self { $(Code::$name => $summary,)* }
            }
        }
    };
}

codes! {
    WriteConflict = 101, Conflict, "another transaction changed what this one read";
    WritersHoldMemory = 102, Conflict, "other transactions hold the memory that is for writes";
    InvalidArgument = 201, Invalid, "the call is wrong";
    KeyTooLong = 202, Invalid, "the key is longer than a key may be";
    TooLarge = 203, Invalid, "the transaction's writes do not fit in memory";
    ReadOnly = 204, Invalid, "the database was opened read-only";
    ReducerMissing = 205, Invalid, "the tree's reducer is not registered";
    ForkedHandle = 206, Invalid, "the handle was used in a process forked after it was opened";
    Closed = 207, Invalid, "the database is closed";
    ReducerPanicked = 208, Invalid, "code of the user panicked inside a reducer or a view";
    NotADatabase = 209, Invalid, "the path is not a Duramen database";
    AlreadyExists = 210, Invalid, "what was to be created exists";
    Unsupported = 211, Invalid, "this build cannot do this with this file";
    NetworkFileSystem = 212, Invalid, "the file system is on a network or unknown";
    Unreadable = 213, Invalid, "a document does not read as the type that was asked for";
    UniqueViolation = 214, Invalid, "another document has the key of a unique view";
    UnfinishedCopy = 215, Invalid, "the database is a copy that was not finished";
    DiskFull = 301, Full, "there is no room for the transaction";
    FeedFull = 302, Full, "the change feed holds as much as it may for a consumer that wants nothing to be lost";
    OutcomeUnknown = 401, InDoubt, "the transaction may or may not survive";
    DamagedData = 501, Corrupt, "bytes in the data file are not what was written";
    DamagedLog = 502, Corrupt, "bytes in the log are not what was written";
    LogMissing = 503, Corrupt, "the log that belongs to the data is not there";
    DamagedSuperblock = 504, Corrupt, "no superblock can be read";
    DamagedFeed = 505, Corrupt, "bytes in a file of the change feed are not what was written";
    EnginePoisoned = 601, Poisoned, "a sync failed and nothing is acknowledged any more";
    DatabaseLocked = 701, Locked, "another process holds the database";
    SnapshotExpired = 801, Expired, "the snapshot was ended to free what it held";
    Rebuilding = 802, Expired, "the reduction is being rebuilt";
    DocumentChanged = 803, Expired, "the document has changed since the revision that was given";
    FeedGap = 804, Expired, "changes that were asked for are no longer kept";
    NoSuchTree = 901, NotFound, "there is no tree of that name";
    NoSuchDatabase = 902, NotFound, "there is no database at the path";
    NoSuchKey = 903, NotFound, "there is nothing under the key";
    System = 1001, Io, "the operating system refused";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "E{:04}", *self as u32)
    }
}

impl Error {
    /// An error with a message of its own.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), hint: None, goes_on_after: None }
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// Names the commit behind which a feed can be read on.
    pub(crate) fn goes_on(self, after: CommitSeq) -> Error {
        Error { goes_on_after: Some(after), ..self }
    }

    /// Where changes are missing from the feed (`FeedGap`, `DamagedFeed`), or a file of it cannot be read (`System`, which may pass): the
    /// commit after which it can be read on.
    #[must_use]
    pub fn goes_on_after(&self) -> Option<CommitSeq> {
        self.goes_on_after
    }

    /// Its stable number.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// What can be done about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.code.kind()
    }

    /// The sentence without code and hint.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the user can do, in words.
    #[must_use]
    pub fn hint(&self) -> String {
        self.hint.clone().unwrap_or_else(|| default_hint(self.kind()).to_owned())
    }

    /// Whether running the same transaction again may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.kind() == ErrorKind::Conflict
    }

    /// Whether bytes on disk are not what was written.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        self.kind() == ErrorKind::Corrupt
    }

    /// Damage in the data file, with the place, what was found and what was wanted.
    #[must_use]
    pub fn damaged_data(file: &Path, offset: u64, what: impl fmt::Display) -> Error {
        Error::new(Code::DamagedData, format!("{} @ {offset:#x}: {what}", file.display()))
    }

    /// Damage in the log, with the place, what was found and what was wanted.
    #[must_use]
    pub fn damaged_log(file: &Path, offset: u64, what: impl fmt::Display) -> Error {
        Error::new(Code::DamagedLog, format!("{} @ {offset:#x}: {what}", file.display()))
    }

    /// What the operating system said about a file, as the kind a caller can act on.
    #[must_use]
    pub fn io(doing: &str, path: &Path, source: &io::Error) -> Error {
        let code = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::DiskFull,
            io::ErrorKind::ReadOnlyFilesystem => Code::ReadOnly,
            _ => Code::System,
        };
        Error::new(code, format!("cannot {doing} {}: {source}", path.display()))
    }

    /// The engine has been poisoned; `cause` is the first failure.
    #[must_use]
    pub fn poisoned(cause: &str) -> Error {
        Error::new(Code::EnginePoisoned, format!("nothing is acknowledged any more since {cause}"))
    }

    /// What this means for a commit that was ordered, and that nobody had waited for: of a poisoned engine, that it may survive.
    pub(crate) fn of_a_commit_under_way(self) -> Error {
        if self.kind() != ErrorKind::Poisoned {
            return self;
        }
        Error::new(
            Code::OutcomeUnknown,
            format!("the transaction may or may not survive: {}", self.message()),
        )
    }

    /// The handle came here through a fork.
    #[must_use]
    pub fn forked() -> Error {
        Error::new(Code::ForkedHandle, "the handle was opened by the process this one was forked from")
            .with_hint("open the database in the process that uses it")
    }

    /// A call that cannot be right.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Code::InvalidArgument, message)
    }
}

fn default_hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Conflict => "run the transaction again, or use transact(), which does",
        ErrorKind::Invalid => "change the call",
        ErrorKind::Full => "free some space on the disk, or delete rows, and repeat; nothing was changed",
        ErrorKind::InDoubt => {
            "open the database again and look whether the change is there before repeating it"
        }
        ErrorKind::Corrupt => {
            "run `duramen check DB`; restore a backup, or `duramen recover DB NEW` for what can still be read"
        }
        ErrorKind::Poisoned => "look at the disk (dmesg), then close and open the database again",
        ErrorKind::Locked => "wait for the other process, or end it",
        ErrorKind::Expired => "take a new snapshot",
        ErrorKind::NotFound => "look at the name",
        ErrorKind::Io => "look at the path, its permissions and the disk",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
