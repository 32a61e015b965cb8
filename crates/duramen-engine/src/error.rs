//! All errors. Each states what the caller can do.

use std::fmt;
use std::io;
use std::path::Path;

use crate::ids::CommitSeq;

/// The result of everything in Duramen. With a second type it is Rust's own `Result`, so that the prelude
/// changes nothing for functions with other errors.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed. [`Error::kind`] is what to do about it, [`Error::code`] names it, [`Error::hint`]
/// helps.
///
/// `Display` writes the message. `Debug` writes the report that a program prints whose `main` returns the
/// error: the message with the code, and the hint on a line of its own. `{:#?}` writes the fields.
///
/// ```text
/// Error: there is no database at /srv/shop.duramen (E0902)
/// hint: look at the path; ...
/// ```
///
/// The section "Errors" of a function names codes: a variant of [`Code`] and its number, such as `NoSuchTree`
/// (E0901). Codes that many functions share are listed here. A function refers to such a list, and adds its
/// own codes.
///
/// # Reads
/// - `CorruptData` (E0501): a page is corrupt.
/// - `System` (E1001): the operating system cannot read it.
/// - `SnapshotExpired` (E0801): the snapshot was ended to free its space.
/// - `WriteConflict` (E0101): commits that the transaction reads were dropped.
/// - `ForkedHandle` (E0206): this process was forked after the database was opened.
/// - `Closed` (E0207): the last handle was dropped before the log was applied to the trees after opening.
/// - `Unsupported` (E0211): a later release wrote a catalogue entry, a blob or a consumer.
/// - `InvalidArgument` (E0201): the stored bytes of a document or key are none. Their page is not corrupt.
///
/// # Writes
/// Those of a read, and these.
/// - `TooLarge` (E0203): the transaction has written as much as it may.
/// - `WritersHoldMemory` (E0102): other transactions use up the memory for writes.
/// - `DiskFull` (E0301): there is no room for a value of 32 KiB or more.
///
/// # Documents
/// Writing a document also changes its rows in views. It can return those of a write, and these. An error
/// that came after a part of the rows was written makes the transaction fail.
/// - `UniqueViolation` (E0214): another document has the same key in a unique view.
/// - `KeyTooLong` (E0202): the key of a row is too long.
/// - `InvalidArgument` (E0201): a view, a sum or a reducer cannot take the document.
/// - `Unreadable` (E0213): the code of a view cannot read the document.
/// - `ReducerPanicked` (E0208): the code of a view or a reducer panicked.
///
/// # Commits
/// Those of a write, and these. Calls that run a closure run it again after `WriteConflict` and
/// `WritersHoldMemory`, and once after `DiskFull`.
/// - `WriteConflict` (E0101): something that the transaction read has changed. Nothing was changed.
/// - `MissingTarget` (E0216), `StillReferenced` (E0217): a document would refer to one that is not there.
/// - `DiskFull` (E0301): there is no room for the transaction. Nothing was changed.
/// - `FeedFull` (E0302): a consumer of the change feed refuses writers. Nothing was changed.
/// - `OutcomeUnknown` (E0401): the transaction may or may not survive.
/// - `EnginePoisoned` (E0601): a sync failed earlier.
/// - `ReadOnly` (E0204): the database was opened read-only.
/// - `Closed` (E0207): the database is closed.
/// - `InvalidArgument` (E0201): the call is inside an event hook, a condition, or a closure that runs alone;
///   or a condition of the transaction panicked.
///
/// # Checkpoints
/// - `DiskFull` (E0301): there is no room for the checkpoint, or for what the change feed keeps.
/// - `System` (E1001): the operating system refused a write or a sync.
/// - `EnginePoisoned` (E0601): a sync failed earlier, or the log could not be synced first.
/// - `CorruptData` (E0501), `CorruptSuperblock` (E0504): what the checkpoint reads is corrupt.
/// - `CorruptLog` (E0502), `LogMissing` (E0503), `CorruptFeed` (E0505): the change feed cannot be kept.
/// - `InvalidArgument` (E0201): the call is inside an event hook, or inside a closure that runs alone.
///
/// # Opening
/// - `NoSuchDatabase` (E0902): the path does not exist, and nothing is to be created.
/// - `NotADatabase` (E0209): something else is at the path, or a creation that was cut short.
/// - `UnfinishedCopy` (E0215): it is an unfinished copy.
/// - `DatabaseLocked` (E0701): another process has the database or its log open.
/// - `NetworkFileSystem` (E0212): the file system is on a network or unknown.
/// - `ReadOnly` (E0204): the file system is read-only, and the database is opened to write.
/// - `Unsupported` (E0211): a later release wrote it.
/// - `CorruptSuperblock` (E0504), `CorruptData` (E0501), `CorruptLog` (E0502): it is corrupt.
/// - `LogMissing` (E0503): the log is not there, or is older than the data.
/// - `DiskFull` (E0301): there is no room for the log.
/// - `InvalidArgument` (E0201): the options do not fit together.
/// - `System` (E1001): the operating system reported an error.
///
/// # Changes
/// Reading the change feed can return these:
/// - `FeedGap` (E0804): changes are no longer kept.
/// - `CorruptFeed` (E0505), `CorruptLog` (E0502), `CorruptData` (E0501): they are corrupt.
/// - `LogMissing` (E0503): a part of the log is not there.
/// - `Unsupported` (E0211): a later release wrote them.
/// - `System` (E1001): the operating system cannot read them.
///
/// An observer can also return these:
/// - `NoSuchDatabase` (E0902), `NotADatabase` (E0209): the database was removed or replaced.
/// - `CorruptSuperblock` (E0504): no superblock can be read.
#[derive(Clone)]
pub struct Error {
    code: Code,
    message: String,
    hint: Option<String>,
    goes_on_after: Option<CommitSeq>,
}

/// Begins the message of an unknown outcome. The cause follows.
const IN_DOUBT: &str = "the transaction may or may not survive: ";

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
    /// Bytes on disk are not what was written: restore a backup, or repair what is whole into a new database.
    Corrupt,
    /// A sync failed earlier and nothing is acknowledged any more: reopen.
    Poisoned,
    /// Another process holds the database.
    Locked,
    /// The snapshot was ended to free its space or memory: take a new one.
    Expired,
    /// What was named is not there.
    NotFound,
    /// The operating system refused; the message has the details.
    Io,
    /// A server cannot be reached, or cannot take the call now. Nothing happened: try again later.
    Unavailable,
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
    WritersHoldMemory = 102, Conflict, "other transactions use up the memory for writes";
    InvalidArgument = 201, Invalid, "the call is wrong";
    KeyTooLong = 202, Invalid, "the key is longer than a key may be";
    TooLarge = 203, Invalid, "the transaction's writes do not fit in memory";
    ReadOnly = 204, Invalid, "the database was opened read-only";
    ReducerMissing = 205, Invalid, "the tree's reducer is not registered";
    ForkedHandle = 206, Invalid, "the handle was used in a process forked after it was opened";
    Closed = 207, Invalid, "the database is closed";
    ReducerPanicked = 208, Invalid, "the program's code panicked inside a reducer or a view";
    NotADatabase = 209, Invalid, "the path is not a Duramen database";
    AlreadyExists = 210, Invalid, "it exists already";
    Unsupported = 211, Invalid, "this build cannot do this with this file";
    NetworkFileSystem = 212, Invalid, "the file system is on a network or unknown";
    Unreadable = 213, Invalid, "a document does not decode as the requested type";
    UniqueViolation = 214, Invalid, "another document has the key of a unique view";
    UnfinishedCopy = 215, Invalid, "the database is a copy that was not finished";
    MissingTarget = 216, Invalid, "a document refers to a document that is not there";
    StillReferenced = 217, Invalid, "other documents refer to the document or collection";
    DiskFull = 301, Full, "there is no room for the transaction";
    FeedFull = 302, Full, "the change feed is full, and a consumer may not lose changes";
    OutcomeUnknown = 401, InDoubt, "the transaction may or may not survive";
    CorruptData = 501, Corrupt, "the data file is corrupt";
    CorruptLog = 502, Corrupt, "the log is corrupt";
    LogMissing = 503, Corrupt, "the log of this database is missing";
    CorruptSuperblock = 504, Corrupt, "no superblock can be read";
    CorruptFeed = 505, Corrupt, "a file of the change feed is corrupt";
    CorruptAudit = 506, Corrupt, "the audit of a server is not what was written";
    EnginePoisoned = 601, Poisoned, "a sync failed, and no commit is acknowledged any more";
    DatabaseLocked = 701, Locked, "another process has the database open";
    SnapshotExpired = 801, Expired, "the snapshot was ended to free its space";
    Rebuilding = 802, Expired, "the reduction is being rebuilt";
    DocumentChanged = 803, Expired, "the document has changed since the given revision";
    FeedGap = 804, Expired, "the requested changes are no longer kept";
    NoSuchTree = 901, NotFound, "there is no tree with that name";
    NoSuchDatabase = 902, NotFound, "there is no database at the path";
    NoSuchKey = 903, NotFound, "the key does not exist";
    System = 1001, Io, "the operating system reported an error";
    Unauthenticated = 1101, Invalid, "the server does not know who calls";
    Forbidden = 1102, Invalid, "the caller may not do this";
    Overloaded = 1103, Unavailable, "the server has no room for the call now";
    TransactionExpired = 1104, Expired, "the transaction was open for too long, and was rolled back";
    RequestTooOld = 1105, Expired, "the request is older than the answers that are kept";
    Draining = 1106, Unavailable, "the server is going down";
    DeadlinePassed = 1108, Unavailable, "the deadline of the call passed before it began";
    WrongVersion = 1109, Invalid, "client and server know no common version of the protocol";
    RequestCancelled = 1110, Invalid, "the request was settled as one that never runs";
    Unreachable = 1111, Unavailable, "no server answers at the address";
    SchemaChanged = 1112, Conflict, "the collection was changed since the type was fitted to it";
    NotLeader = 1201, Unavailable, "this node of a cluster does not lead";
    NoQuorum = 1202, Unavailable, "no majority of the cluster answers";
    StateTooOld = 1203, Unavailable, "the state of this node is older than the call allows";
    LostWrites = 1204, Expired, "the commit is not of this database, or was lost";
    IdentityRetired = 1205, Invalid, "the node was removed from its cluster, or is an older copy of a member";
    WrongCluster = 1206, Invalid, "the node is of another cluster, or has another history";
    IsReplica = 1208, Invalid, "the database is a node of a cluster";
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

    /// Adds the commit after which the feed can be read further.
    pub(crate) fn goes_on(self, after: CommitSeq) -> Error {
        Error { goes_on_after: Some(after), ..self }
    }

    /// The commit after which the feed can be read further, if changes before it are missing (`FeedGap`,
    /// `CorruptFeed`) or cannot be read (`System`, which may be temporary).
    #[must_use]
    pub fn goes_on_after(&self) -> Option<CommitSeq> {
        self.goes_on_after
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.code.kind()
    }

    /// The sentence without code and hint.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the user can do, in words. Empty if the message says it all, as that of an error which the
    /// program has made with [`Error::invalid`].
    #[must_use]
    pub fn hint(&self) -> String {
        self.hint.clone().unwrap_or_else(|| default_hint(self.code).to_owned())
    }

    /// Whether running the same transaction again may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.kind() == ErrorKind::Conflict
    }

    /// Whether bytes on disk are not what was written.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        self.kind() == ErrorKind::Corrupt
    }

    /// Corruption in the data file: file, offset, and what was found and expected.
    #[must_use]
    pub fn corrupt_data(file: &Path, offset: u64, what: impl fmt::Display) -> Error {
        Error::new(Code::CorruptData, format!("{} @ {offset:#x}: {what}", file.display()))
    }

    /// Corruption in the log: file, offset, and what was found and expected.
    #[must_use]
    pub fn corrupt_log(file: &Path, offset: u64, what: impl fmt::Display) -> Error {
        Error::new(Code::CorruptLog, format!("{} @ {offset:#x}: {what}", file.display()))
    }

    /// An operating system error about a file, mapped to the kind that a caller can act on.
    #[must_use]
    pub fn io(doing: &str, path: &Path, source: &io::Error) -> Error {
        let code = match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::DiskFull,
            io::ErrorKind::ReadOnlyFilesystem => Code::ReadOnly,
            _ => Code::System,
        };
        Error::new(code, format!("cannot {doing} {}: {source}", path.display()))
    }

    /// The error of the database that an `io::Error` carries, as those of reads and writes of blobs do. Any
    /// other becomes `System` (E1001), with its text.
    ///
    /// For `map_err(Error::from_io)?`. It is no `From`: with a second one, `?` in a closure that returns
    /// `Ok(...)` would no longer know its error.
    #[must_use]
    pub fn from_io(source: io::Error) -> Error {
        source.downcast().unwrap_or_else(|source| Error::new(Code::System, source.to_string()))
    }

    /// The engine has been poisoned; `cause` is the first failure.
    #[must_use]
    pub fn poisoned(cause: &str) -> Error {
        Error::new(Code::EnginePoisoned, format!("nothing is acknowledged any more since {cause}"))
    }

    /// Maps the error for a commit that was ordered and not waited for: if the engine is poisoned, the commit
    /// may still survive.
    pub(crate) fn of_a_commit_under_way(self) -> Error {
        if self.kind() != ErrorKind::Poisoned {
            return self;
        }
        Error::in_doubt(&self)
    }

    /// The outcome of a commit is unknown; `cause` is the failed write or sync.
    pub(crate) fn in_doubt(cause: &Error) -> Error {
        Error::new(Code::OutcomeUnknown, format!("{IN_DOUBT}{}", cause.message()))
    }

    /// Maps the error of a failed sync of the log for a call that commits nothing: it has no transaction
    /// whose outcome could be unknown.
    pub(crate) fn of_no_commit(self) -> Error {
        if self.kind() != ErrorKind::InDoubt {
            return self;
        }
        let cause = self.message.strip_prefix(IN_DOUBT).unwrap_or(&self.message);
        Error::poisoned(cause)
    }

    /// The handle was used in a forked process.
    #[must_use]
    pub fn forked() -> Error {
        Error::new(Code::ForkedHandle, "the handle was opened by the process this one was forked from")
            .with_hint("open the database in the process that uses it")
    }

    /// The call is wrong. The message says what to change; add a hint with [`Error::with_hint`] if it does
    /// not.
    ///
    /// A program also refuses its own input so: an error from the closure of a transaction rolls it back, and
    /// is returned as it is: `Err(Error::invalid("sold out"))`, `read().map_err(Error::invalid)?`. Text does
    /// not become an error by `into` or by `?`: closures that end with `Ok(..)` would then have to name their
    /// error type.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Code::InvalidArgument, message)
    }
}

fn default_hint(code: Code) -> &'static str {
    if code == Code::InvalidArgument {
        return "";
    }
    if code == Code::ReadOnly {
        return "open it to write: without `read_only`, and on a file system that is mounted for writing";
    }
    match code.kind() {
        ErrorKind::Conflict => "run the transaction again, or use transact(), which does",
        ErrorKind::Invalid => "change the call",
        ErrorKind::Full => "free some space on the disk, or delete rows, and repeat; nothing was changed",
        ErrorKind::InDoubt => {
            "open the database again and look whether the change is there before repeating it"
        }
        ErrorKind::Corrupt => {
            "run `duramen check DB`; restore a backup, or `duramen repair DB NEW` for what can still be read"
        }
        ErrorKind::Poisoned => "look at the disk (dmesg), then close and open the database again",
        ErrorKind::Locked => "wait for the other process, or end it",
        ErrorKind::Expired => "take a new snapshot",
        ErrorKind::NotFound => "look at the name",
        ErrorKind::Io => {
            "look at the path, its owner and mode (`ls -ld`), who asks (`id`), and the disk (`dmesg`)"
        }
        ErrorKind::Unavailable => "nothing was changed: try again in a moment",
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f
                .debug_struct("Error")
                .field("code", &self.code)
                .field("message", &self.message)
                .field("hint", &self.hint)
                .field("goes_on_after", &self.goes_on_after)
                .finish();
        }
        write!(f, "{} ({})", self.message, self.code)?;
        match self.hint() {
            hint if hint.is_empty() => Ok(()),
            hint => write!(f, "\nhint: {hint}"),
        }
    }
}

impl std::error::Error for Error {}
