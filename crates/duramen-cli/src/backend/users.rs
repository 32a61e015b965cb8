//! Users, tokens and the audit of a database, or of a server's.

use std::sync::Arc;

use duramen::{Db, Time};
use duramen_proto::{key, v1};
use duramen_server::audit::{self, Actor, Audit, Mark};
use duramen_server::users::{self, Grant, User, Users};

use super::{Reading, Writing};
use crate::failure::Result;

/// A user, its rights as texts, and the names in its certificates.
pub(crate) struct KnownUser {
    pub(crate) name: String,
    pub(crate) rights: Vec<String>,
    pub(crate) certificates: Vec<String>,
}

/// A token without its secret.
pub(crate) struct KnownToken {
    pub(crate) id: String,
    pub(crate) user: String,
    pub(crate) created: Time,
    pub(crate) expires: Time,
}

impl Reading {
    /// All users and all tokens.
    pub(crate) fn users(&self) -> Result<(Vec<KnownUser>, Vec<KnownToken>)> {
        match self {
            Reading::Local { snapshot, .. } => {
                let Users { users, tokens } = Users::of(snapshot)?;
                let users = users.into_iter().map(|user| KnownUser {
                    name: user.name,
                    rights: user.grants.iter().map(Grant::to_string).collect(),
                    certificates: user.certificates,
                });
                Ok((users.collect(), tokens.into_iter().map(KnownToken::of).collect()))
            }
            Reading::Served(served) => {
                let v1::UsersReply { users, tokens } = served.client.users()?;
                let users = users.into_iter().map(|v1::User { name, rights, certificates }| KnownUser {
                    name,
                    rights,
                    certificates,
                });
                let tokens = tokens.into_iter().map(KnownToken::told).collect::<Result<_>>()?;
                Ok((users.collect(), tokens))
            }
        }
    }
}

impl Reading {
    /// How far the audit has come.
    pub(crate) fn audit_mark(&self) -> Result<Option<Mark>> {
        match self {
            Reading::Local { db, .. } => Ok(audit::mark_of(db)?),
            Reading::Served(served) => {
                let v1::AuditReply { first, last, hash } = served.client.audit()?;
                let hash = audit::Hash::try_from(&hash[..]);
                Ok(hash.ok().map(|hash| Mark { first, last, hash }))
            }
        }
    }
}

/// Does what the audit tells of, in the place of a server.
fn audited<T>(db: &Db, act: impl FnOnce(&Arc<Audit>, &Actor) -> duramen::Result<T>) -> Result<T> {
    let audit = Audit::open(db)?;
    let actor = Actor { user: "admin".to_owned(), from: "command line".to_owned() };
    let done = act(&audit, &actor)?;
    // What was done stays done, and its line is on disk: only the row of the minute is missing if this fails.
    let _ = audit.flush(true);
    Ok(done)
}

impl KnownToken {
    fn of(token: users::Token) -> KnownToken {
        let users::Token { id, user, created, expires, .. } = token;
        KnownToken { id, user, created, expires }
    }

    fn told(token: v1::UserToken) -> Result<KnownToken> {
        let v1::UserToken { id, user, created, expires } = token;
        let time = |of: Option<v1::Time>| key::to_time(&of.unwrap_or_default());
        Ok(KnownToken { id, user, created: time(created)?, expires: time(expires)? })
    }
}

impl Writing {
    /// Adds a user, or gives one that is there other rights and certificates.
    pub(crate) fn put_user(&self, user: KnownUser, is_new: bool) -> Result<()> {
        let KnownUser { name, rights, certificates } = user;
        match self {
            Writing::Local(db) => {
                let grants = rights.iter().map(|right| right.parse()).collect::<duramen::Result<_>>()?;
                let user = User { name, grants, certificates };
                audited(db, |audit, actor| {
                    audit.act(actor, ("put_user", &user.name), || users::put_user(db, &user, is_new))
                })
            }
            Writing::Served(served) => {
                Ok(served.client.put_user(v1::User { name, rights, certificates }, is_new)?)
            }
        }
    }

    /// Drops a user and its tokens. Returns whether it was there.
    pub(crate) fn drop_user(&self, name: &str) -> Result<bool> {
        match self {
            Writing::Local(db) => audited(db, |audit, actor| {
                audit.remove(actor, ("drop_user", name), || users::drop_user(db, name))
            }),
            Writing::Served(served) => Ok(served.client.drop_user(name)?),
        }
    }

    /// Makes a token. Returns its text, too.
    pub(crate) fn add_token(&self, user: &str, days: u64) -> Result<(KnownToken, String)> {
        let seconds = days * 24 * 3600;
        match self {
            Writing::Local(db) => {
                let add = || users::add_token(db, user, seconds);
                let (token, text) = audited(db, |audit, actor| audit.act(actor, ("add_token", user), add))?;
                Ok((KnownToken::of(token), text))
            }
            Writing::Served(served) => {
                let v1::AddTokenReply { token, text } = served.client.add_token(user, seconds)?;
                Ok((KnownToken::told(token.unwrap_or_default())?, text))
            }
        }
    }

    /// Ends a token. Returns whether it was there.
    pub(crate) fn revoke_token(&self, id: &str) -> Result<bool> {
        match self {
            Writing::Local(db) => audited(db, |audit, actor| {
                audit.remove(actor, ("revoke_token", id), || users::revoke_token(db, id))
            }),
            Writing::Served(served) => Ok(served.client.revoke_token(id)?),
        }
    }
}
