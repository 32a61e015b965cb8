//! Users and tokens as messages.

use duramen::Db;
use duramen::error::{Error, Result};
use duramen_proto::{key, v1};

use crate::users::{self, Token, User, Users};

/// Everything that is stored of them.
pub(super) fn all(db: &Db) -> Result<v1::UsersReply> {
    let Users { users, tokens } = Users::of(&db.snapshot()?)?;
    Ok(v1::UsersReply { users: users.iter().map(user).collect(), tokens: tokens.iter().map(token).collect() })
}

/// Stores a user.
pub(super) fn put(db: &Db, request: &v1::PutUserRequest) -> Result<v1::PutUserReply> {
    let asked = request.user.as_ref().ok_or_else(|| Error::invalid("the user is missing"))?;
    let grants = asked.rights.iter().map(|right| right.parse()).collect::<Result<Vec<_>>>()?;
    let (name, certificates) = (asked.name.clone(), asked.certificates.clone());
    users::put_user(db, &User { name, grants, certificates }, request.is_new)?;
    Ok(v1::PutUserReply {})
}

/// Makes a token.
pub(super) fn add_token(db: &Db, request: &v1::AddTokenRequest) -> Result<v1::AddTokenReply> {
    let (made, text) = users::add_token(db, &request.user, request.valid_seconds)?;
    Ok(v1::AddTokenReply { token: Some(token(&made)), text })
}

fn user(of: &User) -> v1::User {
    v1::User {
        name: of.name.clone(),
        rights: of.grants.iter().map(ToString::to_string).collect(),
        certificates: of.certificates.clone(),
    }
}

fn token(of: &Token) -> v1::UserToken {
    v1::UserToken {
        id: of.id.clone(),
        user: of.user.clone(),
        created: Some(key::of_time(of.created)),
        expires: Some(key::of_time(of.expires)),
    }
}
