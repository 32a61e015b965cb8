//! The users and tokens of the database in memory, as of the last commit that changed them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use duramen::error::{Code, Error, Result};
use duramen::{Db, Time, wire};

use super::rights::{self, Grant, Named, Right};
use crate::users::{self, ADMIN, Token, User, Users};

/// A failed read is not tried again sooner.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// The users that may call, beside the owner of the database's directory.
#[derive(Debug)]
pub(crate) struct Directory {
    db: Db,
    known: Mutex<Arc<Known>>,
}

/// What was read.
#[derive(Debug, Default)]
struct Known {
    /// Of the rows; `None` before the first look.
    version: Option<u64>,
    users: HashMap<String, Vec<Grant>>,
    tokens: HashMap<String, Token>,
    /// The user of a name in a certificate.
    certificates: HashMap<String, String>,
    /// The error of the read, and when that was: until the next one no user is known.
    failed: Option<(Error, Instant)>,
}

impl Directory {
    pub(crate) fn new(db: Db) -> Directory {
        Directory { db, known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is stored, read again if it was changed.
    fn known(&self) -> Result<Arc<Known>> {
        // Before the state: a commit in between is seen by the next look.
        let version = wire::user_rows_version(&self.db);
        let mut known = Arc::clone(&self.lock());
        let is_too_old = known.failed.as_ref().is_some_and(|(_, at)| at.elapsed() > FAILED_FOR);
        if known.version != Some(version) || is_too_old {
            // Others go on meanwhile with what they have.
            known = Arc::new(self.read(version));
            *self.lock() = Arc::clone(&known);
        }
        match &known.failed {
            Some((error, _)) => Err(error.clone()),
            None => Ok(known),
        }
    }

    fn read(&self, version: u64) -> Known {
        let known = Known { version: Some(version), ..Known::default() };
        match self.db.snapshot().and_then(|snapshot| Users::of(&snapshot)) {
            Ok(Users { users, tokens }) => Known {
                certificates: certificates(&users),
                users: users.into_iter().map(|user| (user.name, user.grants)).collect(),
                tokens: tokens.into_iter().map(|token| (token.id.clone(), token)).collect(),
                ..known
            },
            Err(error) => Known { failed: Some((error, Instant::now())), ..known },
        }
    }

    /// The caller with this token; `None` if no user has it.
    ///
    /// # Errors
    /// `Unauthenticated` (E1101) for one that has expired; those of a read.
    pub(super) fn caller(self: &Arc<Self>, text: &[u8]) -> Result<Option<Caller>> {
        let Some(id) = std::str::from_utf8(text).ok().and_then(users::id_of) else { return Ok(None) };
        let known = self.known()?;
        let Some(token) = known.tokens.get(id).filter(|token| {
            super::is_same(&token.sha256, &users::hash_of(text)) && known.users.contains_key(&token.user)
        }) else {
            return Ok(None);
        };
        check_time(token)?;
        let (name, by) = (token.user.clone(), By::Token(id.to_owned()));
        Ok(Some(Caller(Arc::new(Who::User { name, by, directory: Arc::clone(self) }))))
    }

    /// The caller whose certificate has these names.
    ///
    /// # Errors
    /// `Unauthenticated` (E1101) if they are the names of no user, or of several; those of a read.
    pub(super) fn by_names(self: &Arc<Self>, names: &[String]) -> Result<Caller> {
        let known = self.known()?;
        let mut found = names.iter().filter_map(|name| Some((name, known.certificates.get(name)?)));
        let refused = |why: &str| {
            Err(Error::new(
                Code::Unauthenticated,
                format!("the certificate of {} is {why}", names.join(", ")),
            )
            .with_hint("an administrator names one of its names: `duramen user set ... --cert NAME`"))
        };
        let Some((name, user)) = found.next() else { return refused("that of no user") };
        if found.any(|(_, other)| other != user) {
            return refused("that of several users");
        }
        let by = By::Certificate(name.clone());
        Ok(Caller(Arc::new(Who::User { name: user.clone(), by, directory: Arc::clone(self) })))
    }
}

/// The user of each name that certificates may have. No two users have the same one.
fn certificates(users: &[User]) -> HashMap<String, String> {
    let names = users.iter().flat_map(|user| user.certificates.iter().map(|name| (name, &user.name)));
    names.map(|(name, user)| (name.clone(), user.clone())).collect()
}

fn check_time(token: &Token) -> Result<()> {
    if Time::now() < token.expires {
        return Ok(());
    }
    let what = format!("the token {} of {:?} expired at {}", token.id, token.user, token.expires);
    Err(Error::new(Code::Unauthenticated, what)
        .with_hint("an administrator makes a new one: `duramen token add`"))
}

/// The caller of a call: the administrator, or a user.
#[derive(Clone)]
pub(crate) struct Caller(Arc<Who>);

enum Who {
    /// The owner of the directory, or who can read `serve.token`.
    Admin,
    User {
        name: String,
        by: By,
        directory: Arc<Directory>,
    },
}

/// How a user has shown who it is.
enum By {
    /// By a token of this id.
    Token(String),
    /// By a certificate that has this name.
    Certificate(String),
}

impl Caller {
    pub(super) fn admin() -> Caller {
        Caller(Arc::new(Who::Admin))
    }

    /// Whether all is allowed, whatever is stored of users.
    pub(crate) fn is_admin(&self) -> bool {
        matches!(*self.0, Who::Admin)
    }

    /// What the caller has shown.
    pub(crate) fn shown(&self) -> String {
        match &*self.0 {
            Who::Admin => ADMIN.to_owned(),
            Who::User { by: By::Token(id), .. } => format!("token {id}"),
            Who::User { by: By::Certificate(name), .. } => format!("certificate {name}"),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match &*self.0 {
            Who::Admin => ADMIN,
            Who::User { name, .. } => name,
        }
    }

    /// Looks at the caller's grants as they are now.
    fn with_grants<T>(&self, look: impl FnOnce(&[Grant]) -> T) -> Result<Option<T>> {
        let Who::User { name, by, directory } = &*self.0 else { return Ok(None) };
        let known = directory.known()?;
        let ended = |what: String| {
            Err(Error::new(Code::Unauthenticated, what).with_hint("ask an administrator for a new one"))
        };
        let Some(grants) = known.users.get(name) else {
            return ended(format!("the user {name:?} was dropped"));
        };
        match by {
            By::Token(id) => match known.tokens.get(id) {
                Some(token) => check_time(token)?,
                None => return ended(format!("the token {id} of {name:?} was revoked")),
            },
            By::Certificate(of) if known.certificates.get(of) == Some(name) => {}
            By::Certificate(of) => return ended(format!("the certificate of {of} is no longer {name:?}'s")),
        }
        Ok(Some(look(grants)))
    }

    /// Fails once what the caller has shown was revoked or has expired.
    ///
    /// # Errors
    /// `Unauthenticated` (E1101).
    pub(crate) fn check(&self) -> Result<()> {
        self.with_grants(|_| ()).map(drop)
    }

    /// Whether the caller has a right on everything, or on what has a name.
    ///
    /// # Errors
    /// `Unauthenticated` (E1101) if its token or certificate was revoked or has expired.
    pub(crate) fn has(&self, right: Right, of: Option<(Named, &str)>) -> Result<bool> {
        Ok(self.with_grants(|grants| rights::allow(grants, right, of))?.unwrap_or(true))
    }

    /// Whether the caller has any right on what has a name: it may know that it is there.
    ///
    /// # Errors
    /// `Unauthenticated` (E1101) if its token or certificate was revoked or has expired.
    pub(crate) fn knows(&self, named: Named, name: &str) -> Result<bool> {
        Ok(self.with_grants(|grants| rights::are_on(grants, named, name))?.unwrap_or(true))
    }

    /// Fails unless the caller has a right on anything.
    ///
    /// # Errors
    /// `Forbidden` (E1102); `Unauthenticated` (E1101) if its token or certificate was revoked or has expired.
    pub(crate) fn needs_any(&self, right: Right) -> Result<()> {
        if self.with_grants(|grants| rights::allow_any(grants, right))?.unwrap_or(true) {
            return Ok(());
        }
        self.needs(right, None)
    }

    /// Fails unless the caller may commit anything: a request id is kept with its commit, and asking for its
    /// outcome settles whether there will be one.
    ///
    /// # Errors
    /// `Forbidden` (E1102); `Unauthenticated` (E1101) if its token or certificate was revoked or has expired.
    pub(crate) fn needs_to_commit(&self) -> Result<()> {
        let others = [Right::Schema, Right::Consumer, Right::Operator];
        for right in others {
            if self.with_grants(|grants| rights::allow_any(grants, right))?.unwrap_or(true) {
                return Ok(());
            }
        }
        self.needs_any(Right::Writer)
    }

    /// Fails unless the caller has a right on everything, or on what has a name.
    ///
    /// # Errors
    /// `Forbidden` (E1102); `Unauthenticated` (E1101) if its token or certificate was revoked or has expired.
    pub(crate) fn needs(&self, right: Right, of: Option<(Named, &str)>) -> Result<()> {
        if self.has(right, of)? {
            return Ok(());
        }
        let grant = match of {
            Some((named, name)) => format!("{}={}:{name}", right.name(), named.name()),
            None => right.name().to_owned(),
        };
        Err(Error::new(Code::Forbidden, format!("the user {:?} has not the right {grant}", self.name()))
            .with_hint("an administrator grants it: `duramen user set` with all rights of the user"))
    }

    /// An error, without what the caller may not read: one of a delete may name documents of any collection
    /// that refers to the deleted ones, and after such a delete a unique view may be one of theirs.
    pub(crate) fn may_see(&self, error: Error, has_followed: bool) -> Error {
        let (what, hint) = match error.code() {
            Code::StillReferenced => (
                "other documents refer to it",
                "delete or change them first; a user with the right reader on everything is told which they are",
            ),
            Code::UniqueViolation if has_followed => (
                "another document has the same key in a unique view",
                "it may be one of a collection that refers to what was deleted; a user with the right reader on everything is told which it is",
            ),
            _ => return error,
        };
        let reads_everything = self.has(Right::Reader, None).unwrap_or(false);
        if reads_everything { error } else { Error::new(error.code(), what).with_hint(hint) }
    }
}

/// Without what the database's handle shows.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Caller").field(&self.name()).finish()
    }
}
