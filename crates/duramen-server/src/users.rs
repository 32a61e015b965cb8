//! The users of a served database, and their tokens: rows of the database, so they are in its backups.
//!
//! A token is shown once; the database has its SHA-256. It is valid until it expires or is revoked, and as
//! long as its user is there. Stored bytes: docs/format.md, section "Users".

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use duramen::error::{Code, Error, Result};
use duramen::tuple::{Element, decode, encode};
use duramen::{Db, Document, Durability, LocalReads, Time, Transaction, Value, doc, wire};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};

pub use crate::auth::rights::{Grant, Named, Right};

/// The name that the local administrator has: the directory's owner, and who has `serve.token`.
pub(crate) const ADMIN: &str = "admin";

/// Of a name.
const NAME_BYTES_MAX: usize = 64;

/// Grants of a user.
const GRANTS_MAX: usize = 256;

/// Names in certificates of a user, and bytes of one.
const CERTIFICATES_MAX: usize = 16;
const CERTIFICATE_BYTES_MAX: usize = 255;

/// How long a token is valid that asks for no other time.
const VALID_SECONDS: u64 = 90 * 24 * 3600;

/// The kinds of rows: the first element of their keys.
const USER: &str = "user";
const TOKEN: &str = "token";

/// A user, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub grants: Vec<Grant>,
    /// Names of DNS and URIs: a client that shows a certificate with one of them is this user.
    pub certificates: Vec<String>,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Names it, to revoke it.
    pub id: String,
    /// Whose it is.
    pub user: String,
    /// When it was made.
    pub created: Time,
    /// When it ends.
    pub expires: Time,
    pub(crate) sha256: [u8; 32],
}

/// Everything that is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    /// By name.
    pub users: Vec<User>,
    /// By id.
    pub tokens: Vec<Token>,
}

impl Users {
    /// The users and tokens of a state.
    ///
    /// # Errors
    /// Those of a [read](duramen::Error#reads). What this release cannot read lets nobody in: a grant or a
    /// token of another release is left out.
    pub fn of(state: &impl LocalReads) -> Result<Users> {
        let mut all = Users::default();
        for (key, stored) in wire::user_rows(state)? {
            let row = Document::from_bytes(&stored).unwrap_or_default();
            match &decode(&key).unwrap_or_default()[..] {
                [Element::Text(kind), Element::Text(name)] if kind == USER => {
                    let grants = texts(&row, "grants").filter_map(|grant| grant.parse().ok()).collect();
                    let certificates = texts(&row, "certificates").map(str::to_owned).collect();
                    all.users.push(User { name: name.clone(), grants, certificates });
                }
                [Element::Text(kind), Element::Text(id)] if kind == TOKEN => {
                    all.tokens.extend(token_of(id, &row));
                }
                _ => {}
            }
        }
        Ok(all)
    }
}

/// Adds a user, or gives one that is there other grants and names in certificates.
///
/// # Errors
/// `InvalidArgument` (E0201) for a name that is none; `AlreadyExists` (E0210) and `NoSuchKey` (E0903) if it
/// is there, or is not, and should not be, or should; `AlreadyExists` for another user's name in
/// certificates; those of a [commit](duramen::Error#commits).
pub fn put_user(db: &Db, user: &User, is_new: bool) -> Result<()> {
    check_name(&user.name)?;
    if user.grants.len() > GRANTS_MAX {
        return Err(Error::invalid(format!("a user has at most {GRANTS_MAX} grants"))
            .with_hint("grant on names that begin alike, with a star at the end"));
    }
    check_certificates(&user.certificates)?;
    let grants: Vec<Value> = user.grants.iter().map(|grant| Value::from(grant.to_string())).collect();
    let mut row = doc! { "grants": grants };
    if !user.certificates.is_empty() {
        let names = user.certificates.iter().map(|name| Value::from(name.as_str()));
        row.set("certificates", Value::List(names.collect()));
    }
    let (key, row) = (key(USER, &user.name)?, row.to_bytes()?);
    at_disk(db).transact(|tx| {
        let is_there = wire::user_row(tx, &key)?.is_some();
        if is_new && is_there {
            let what = format!("there is a user {:?} already", user.name);
            return Err(
                Error::new(Code::AlreadyExists, what).with_hint("change its rights, or choose another name")
            );
        }
        if !is_new && !is_there {
            return Err(no_user(&user.name));
        }
        if !user.certificates.is_empty() {
            check_owners(user, &Users::of(tx)?.users)?;
        }
        wire::put_user_row(tx, &key, &row)
    })
}

/// A certificate is that of one user.
fn check_owners(user: &User, all: &[User]) -> Result<()> {
    let others = || all.iter().filter(|other| other.name != user.name);
    for name in &user.certificates {
        if let Some(other) = others().find(|other| other.certificates.contains(name)) {
            let what = format!("certificates of {name} are those of the user {:?}", other.name);
            return Err(Error::new(Code::AlreadyExists, what)
                .with_hint("take the name from that user first, or use another one"));
        }
    }
    Ok(())
}

/// Removes a user and its tokens. Returns whether it was there.
///
/// # Errors
/// Those of a [commit](duramen::Error#commits).
pub fn drop_user(db: &Db, name: &str) -> Result<bool> {
    let user = key(USER, name)?;
    at_disk(db).transact(|tx| {
        let tokens = Users::of(tx)?.tokens;
        for token in tokens.iter().filter(|token| token.user == name) {
            wire::delete_user_row(tx, &key(TOKEN, &token.id)?)?;
        }
        wire::delete_user_row(tx, &user)
    })
}

/// Makes a token for a user, valid for so many seconds; 0: 90 days. Its text is returned this once.
///
/// # Errors
/// `NoSuchKey` (E0903) without such a user; `InvalidArgument` (E0201) for a time beyond all times; `System`
/// (E1001) if the system gives no random bytes; those of a [commit](duramen::Error#commits).
pub fn add_token(db: &Db, user: &str, valid_seconds: u64) -> Result<(Token, String)> {
    let valid = if valid_seconds == 0 { VALID_SECONDS } else { valid_seconds };
    let created = Time::now();
    let expires = i64::try_from(valid).ok().and_then(|valid| created.seconds().checked_add(valid));
    let expires = expires
        .and_then(|seconds| Time::new(seconds, 0))
        .ok_or_else(|| Error::invalid(format!("a token cannot be valid for {valid} seconds")))?;
    let (id, secret) = (hex(&random::<8>()?), URL_SAFE_NO_PAD.encode(random::<32>()?));
    let text = format!("dur_{id}_{secret}");
    let sha256: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let token = Token { id, user: user.to_owned(), created, expires, sha256 };
    let row = doc! {
        "user": user, "created": created, "expires": expires, "sha256": Value::Bytes(sha256.to_vec()),
    };
    let (key_of_user, key, row) = (key(USER, user)?, key(TOKEN, &token.id)?, row.to_bytes()?);
    at_disk(db).transact(|tx| {
        if wire::user_row(tx, &key_of_user)?.is_none() {
            return Err(no_user(user));
        }
        wire::put_user_row(tx, &key, &row)
    })?;
    Ok((token, text))
}

/// Revokes a token, at once. Returns whether it was there.
///
/// # Errors
/// Those of a [commit](duramen::Error#commits).
pub fn revoke_token(db: &Db, id: &str) -> Result<bool> {
    let key = key(TOKEN, id)?;
    at_disk(db).transact(|tx: &mut Transaction<'_>| wire::delete_user_row(tx, &key))
}

/// A right that was taken away must not come back after a power cut, whatever the level of the program's
/// handle.
fn at_disk(db: &Db) -> Db {
    db.at(Durability::Disk)
}

/// The id in the text of a token.
pub(crate) fn id_of(text: &str) -> Option<&str> {
    text.strip_prefix("dur_")?.split_once('_').map(|(id, _)| id)
}

/// The hash under which a token is stored.
pub(crate) fn hash_of(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

fn key(kind: &str, name: &str) -> Result<Vec<u8>> {
    encode(&(kind, name))
}

fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let what = format!("{name:?} cannot be the name of a user");
        return Err(Error::invalid(what)
            .with_hint(format!("use 1 to {NAME_BYTES_MAX} of: letters and digits of ASCII, - _ . @")));
    }
    if name == ADMIN {
        return Err(Error::invalid(format!("{ADMIN:?} is the owner of the database's directory"))
            .with_hint("choose another name; the right `admin` can be granted to it"));
    }
    Ok(())
}

fn check_certificates(names: &[String]) -> Result<()> {
    if names.len() > CERTIFICATES_MAX {
        return Err(Error::invalid(format!("a user has at most {CERTIFICATES_MAX} names in certificates")));
    }
    let is_name = |name: &&String| {
        !name.is_empty()
            && name.len() <= CERTIFICATE_BYTES_MAX
            && name.bytes().all(|byte| byte.is_ascii_graphic())
            && !name.contains('*')
    };
    match names.iter().find(|name| !is_name(name)) {
        None => Ok(()),
        Some(name) => Err(Error::invalid(format!("{name:?} cannot be a name in a certificate"))
            .with_hint("name a name of DNS or a URI as it stands in the certificate's subject alternative names, without a star")),
    }
}

fn no_user(name: &str) -> Error {
    Error::new(Code::NoSuchKey, format!("there is no user {name:?}"))
        .with_hint("`duramen user list` has all; `duramen user add` adds one")
}

/// The texts in a list of a row.
fn texts<'a>(row: &'a Document, field: &str) -> impl Iterator<Item = &'a str> {
    let list = match row.get(field) {
        Some(Value::List(list)) => &list[..],
        _ => &[],
    };
    list.iter().filter_map(|value| match value {
        Value::Text(text) => Some(text.as_str()),
        _ => None,
    })
}

fn token_of(id: &str, row: &Document) -> Option<Token> {
    match (row.get("user")?, row.get("created")?, row.get("expires")?, row.get("sha256")?) {
        (Value::Text(user), Value::Time(created), Value::Time(expires), Value::Bytes(sha256)) => {
            Some(Token {
                id: id.to_owned(),
                user: user.clone(),
                created: *created,
                expires: *expires,
                sha256: sha256[..].try_into().ok()?,
            })
        }
        _ => None,
    }
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(count) if count == N => Ok(bytes),
        _ => Err(Error::new(Code::System, "the system gives no random bytes for a token")),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
