//! Every way in which a command fails: its message and its exit code.
//!
//! Owns the table of exit codes. 2 is for arguments that are wrong whatever the database contains.

use std::io;
use std::path::Path;

use duramen::{Code, Error, ErrorKind};

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A message and an exit code.
    Said(Box<Said>),
    /// The reader of standard output has closed it: nothing can be printed.
    OutputClosed,
    /// Everything was printed already; only the exit code is left.
    Exit(u8),
}

/// A sentence, a hint, a code, and the exit code.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) exit: u8,
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) hint: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const CORRUPT: u8 = 3;
const LOCKED: u8 = 4;
pub(crate) const CANNOT_KEEP: u8 = 5;
/// No server answers.
const UNREACHABLE: u8 = 6;
/// The server does not let this user in.
const NOT_ALLOWED: u8 = 7;
/// The server cannot commit any more.
pub(crate) const POISONED: u8 = 8;
const SIGNAL_BASE: u8 = 128;

impl Failure {
    /// Invalid arguments.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::said(USAGE, Code::InvalidArgument, message, hint)
    }

    /// Invalid input.
    pub(crate) fn data(message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::said(FAILED, Code::InvalidArgument, message, hint)
    }

    /// An error of the system on a file that is not the database's.
    pub(crate) fn io(doing: &str, path: &Path, error: &io::Error) -> Failure {
        Failure::from(Error::io(doing, path, error)).when_full("make room there, and repeat")
    }

    /// Any failure.
    pub(crate) fn said(exit: u8, code: Code, message: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Said(Box::new(Said { exit, code, message: message.into(), hint: hint.into() }))
    }

    /// The same failure with its sentence extended, if it has one.
    pub(crate) fn and(mut self, more: &str) -> Failure {
        if let Failure::Said(said) = &mut self {
            said.message.push_str(more);
        }
        self
    }

    /// The same failure with another hint, if it has one.
    pub(crate) fn hinted(mut self, hint: impl Into<String>) -> Failure {
        if let Failure::Said(said) = &mut self {
            said.hint = hint.into();
        }
        self
    }

    /// The same failure. If a transaction was too large, the hint is replaced: the command has `--batch`.
    pub(crate) fn when_batched(self) -> Failure {
        match &self {
            Failure::Said(said) if said.code == Code::TooLarge => self.hinted("use a smaller --batch"),
            _ => self,
        }
    }

    /// The same failure. A hint that is the same for all wrong calls is replaced.
    pub(crate) fn when_vague(self, hint: impl Into<String>) -> Failure {
        match &self {
            Failure::Said(said) if said.hint == Error::invalid("").hint() => self.hinted(hint),
            _ => self,
        }
    }

    /// The same failure. If another process has the database open, its hint goes on with what that one can
    /// do.
    pub(crate) fn when_locked(mut self, more: &str) -> Failure {
        if let Failure::Said(said) = &mut self
            && said.code == Code::DatabaseLocked
        {
            said.hint.push_str("; ");
            said.hint.push_str(more);
        }
        self
    }

    /// The same failure. If its kind is want of space, the hint is replaced by one for the current command.
    pub(crate) fn when_full(self, hint: impl Into<String>) -> Failure {
        match &self {
            Failure::Said(said) if said.code.kind() == ErrorKind::Full => self.hinted(hint),
            _ => self,
        }
    }

    /// The same failure of a command that fills a new directory. For want of space the hint names that
    /// directory.
    pub(crate) fn when_full_copy(self, new: &Path) -> Failure {
        let shown = new.display();
        self.when_full(format!(
            "free space on the disk of {shown}, or name a place on another disk; remove {shown}, which is unfinished, before you repeat"
        ))
    }

    /// Ended by a signal, after everything was printed.
    pub(crate) fn signal(number: u8) -> Failure {
        Failure::Exit(SIGNAL_BASE.saturating_add(number))
    }

    /// Standard output refused what was written.
    pub(crate) fn output(error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::io("write to", Path::new("standard output"), error)
    }

    /// The code of the error, if it has one.
    pub(crate) fn code(&self) -> Option<Code> {
        match self {
            Failure::Said(said) => Some(said.code),
            Failure::OutputClosed | Failure::Exit(_) => None,
        }
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> u8 {
        match self {
            Failure::Said(said) => said.exit,
            Failure::OutputClosed => 0,
            Failure::Exit(code) => *code,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match error.kind() {
            ErrorKind::Corrupt => CORRUPT,
            ErrorKind::Locked => LOCKED,
            _ if error.code() == Code::Unreachable => UNREACHABLE,
            _ if [Code::Unauthenticated, Code::Forbidden].contains(&error.code()) => NOT_ALLOWED,
            _ if error.code() == Code::NetworkFileSystem => CANNOT_KEEP,
            _ => FAILED,
        };
        let hint = match error.code() {
            Code::NetworkFileSystem => "put the database on a local disk".to_owned(),
            Code::ReadOnly => "mount it for writing, or name a place that can be written".to_owned(),
            _ => without_calls(&error),
        };
        Failure::said(exit, error.code(), error.message(), hint)
    }
}

/// The hint of an error, with commands instead of calls of the library.
fn without_calls(error: &Error) -> String {
    let hint = error.hint();
    match error.code() {
        Code::StillReferenced if hint.contains("cascade") => {
            "delete or change them first; or let the reference follow: `duramen reference add DB -c COLLECTION FIELD TO \
             --on-delete cascade --replace` deletes them too, and `--on-delete clear` clears their field"
                .to_owned()
        }
        Code::StillReferenced => match hint.split_once('`') {
            Some((_, command)) => format!("drop these references or collections first: `{command}"),
            None => hint,
        },
        Code::MissingTarget => hint.replace(" first or in the same transaction", " first"),
        Code::TooLarge => hint.replace("Db::delete_range, or ", ""),
        Code::InvalidArgument => hint
            .replace(", or give it another name (Aggregate::named)", "")
            .replace(" (Join::named, NAME:COLLECTION=FIELD)", ": NAME:COLLECTION=FIELD"),
        _ => hint,
    }
}

#[cfg(test)]
mod tests {
    //! A hint must fit the command that failed.
    use super::*;

    #[test]
    fn a_new_directory_without_room_is_named() {
        let full = Error::new(Code::DiskFull, "no room");
        let Failure::Said(said) = Failure::from(full).when_full_copy(Path::new("/backups/one")) else {
            panic!("it has a message")
        };
        assert!(said.hint.contains("remove /backups/one"), "{}", said.hint);
        assert!(!said.hint.contains("delete rows"), "{}", said.hint);
    }
}
