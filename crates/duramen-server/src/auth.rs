//! The user at the other end of a connection, and whether that user may call.
//!
//! On the socket the kernel says the user: the owner of the database's directory and root are the
//! administrator, others are refused. On TCP each call carries a token of a user of the database, or its
//! connection has shown a certificate of one; from this machine it may carry the token in `serve.token`,
//! which is the administrator's. `rights` says what users may do, `needs`
//! what the parts of messages take, `directory` keeps what is stored of users.

mod directory;
pub(crate) mod needs;
pub(crate) mod rights;

use std::net::SocketAddr;
use std::sync::Arc;

use duramen::error::{Code, Error, Result};
use http::HeaderMap;
use http::header::AUTHORIZATION;

pub(crate) use directory::{Caller, Directory};
pub(crate) use rights::{Named, Right};

/// The user that the kernel shows for one it cannot name here, in a container for example.
const OVERFLOW_UID: u32 = 65_534;

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A process of this user, on the socket.
    Local { uid: u32 },
    /// A process of any user, by TCP, and the names in the certificate that it has shown.
    Tcp { address: SocketAddr, names: Arc<[String]> },
}

impl Peer {
    /// Where it is, for the audit.
    pub(crate) fn place(&self) -> Arc<str> {
        match self {
            Peer::Local { uid } => format!("socket, user {uid}").into(),
            Peer::Tcp { address, .. } => address.ip().to_canonical().to_string().into(),
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Peer::Local { .. })
    }
}

/// The users that may call.
#[derive(Debug)]
pub(crate) struct Auth {
    /// The owner of the directory.
    pub(crate) owner: u32,
    /// The administrator's token of TCP; without one there are no listeners.
    pub(crate) token: Option<String>,
    /// The users of the database.
    pub(crate) users: Arc<Directory>,
    /// A call by TCP without token and certificate is the administrator's.
    pub(crate) without_auth: bool,
}

impl Auth {
    /// The caller. A call that carries a token is that of the token's user, whatever else there is.
    ///
    /// # Errors
    /// `Forbidden` (E1102) for another user's process; `Unauthenticated` (E1101) without a valid token.
    pub(crate) fn caller(&self, peer: &Peer, headers: &HeaderMap) -> Result<Caller> {
        let has_token = headers.contains_key(AUTHORIZATION);
        match peer {
            Peer::Local { uid } => {
                let admin = self.local(*uid)?;
                if has_token { self.by_token(headers, true) } else { Ok(admin) }
            }
            Peer::Tcp { names, .. } if !has_token && !names.is_empty() => self.users.by_names(names),
            Peer::Tcp { .. } if !has_token && self.without_auth => Ok(Caller::admin()),
            Peer::Tcp { address, .. } => self.by_token(headers, address.ip().to_canonical().is_loopback()),
        }
    }

    fn local(&self, uid: u32) -> Result<Caller> {
        if uid == 0 || (uid == self.owner && uid != OVERFLOW_UID) {
            return Ok(Caller::admin());
        }
        Err(Error::new(Code::Forbidden, format!("the user {uid} may not use this database")).with_hint(
            format!("the database belongs to the user {}: run the command as that one", self.owner),
        ))
    }

    /// The administrator's token is for processes of this machine.
    fn by_token(&self, headers: &HeaderMap, is_here: bool) -> Result<Caller> {
        let hint = match is_here {
            true => {
                "send a token, such as the administrator's in DB/serve.token, as `authorization: Bearer TOKEN`; the command line takes it from DURAMEN_TOKEN, or by `--at duramen://HOST:PORT?token_file=DB/serve.token`"
            }
            false => {
                "send a user's token (`duramen token add` makes one) as `authorization: Bearer TOKEN`, or show a certificate of a user; the command line takes a token from DURAMEN_TOKEN"
            }
        };
        let refused =
            |why: &str| Err(Error::new(Code::Unauthenticated, format!("the call has {why}")).with_hint(hint));
        let Some(given) = headers.get(AUTHORIZATION) else { return refused("no token") };
        let given = given.as_bytes();
        let token = match given.split_at_checked(7) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
            _ => return refused("no token of the form `Bearer TOKEN`"),
        };
        if is_here && self.token.as_ref().is_some_and(|wanted| is_same(wanted.as_bytes(), token)) {
            return Ok(Caller::admin());
        }
        self.users
            .caller(token)?
            .map_or_else(|| refused("a token that is not valid here, or was revoked"), Ok)
    }
}

/// Compares in the same time whatever differs, so that a token cannot be learnt byte by byte.
fn is_same(wanted: &[u8], given: &[u8]) -> bool {
    wanted.len() == given.len()
        && wanted.iter().zip(given).fold(0, |differs, (wanted, given)| differs | (wanted ^ given)) == 0
}

#[cfg(test)]
mod tests {
    //! A user that is not named must not get in.
    use super::*;

    fn auth(owner: u32, token: Option<&str>) -> Auth {
        let db = duramen::Db::in_memory().expect("a database");
        let users = Arc::new(Directory::new(db));
        Auth { owner, token: token.map(str::to_owned), users, without_auth: false }
    }

    fn tcp(address: &str) -> Peer {
        Peer::Tcp { address: address.parse().expect("an address"), names: Arc::default() }
    }

    fn code(done: Result<Caller>) -> Option<Code> {
        done.err().map(|error| error.code())
    }

    #[test]
    fn the_owner_and_root_may_call_and_others_may_not() {
        let auth = auth(1000, None);
        let of = |uid| code(auth.caller(&Peer::Local { uid }, &HeaderMap::new()));
        assert_eq!((of(0), of(1000)), (None, None));
        assert_eq!((of(1001), of(OVERFLOW_UID)), (Some(Code::Forbidden), Some(Code::Forbidden)));
        let nobodys = self::auth(OVERFLOW_UID, None);
        let of = |uid| code(nobodys.caller(&Peer::Local { uid }, &HeaderMap::new()));
        assert_eq!(of(OVERFLOW_UID), Some(Code::Forbidden));
    }

    #[test]
    fn tcp_wants_the_token() {
        let auth = auth(1000, Some("dur_1_abc"));
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().expect("a header"));
            code(auth.caller(&tcp("127.0.0.1:9"), &headers))
        };
        assert_eq!(with("Bearer dur_1_abc"), None);
        assert_eq!(with("bearer dur_1_abc"), None);
        for wrong in ["", "Bearer", "Bearer ", "Bearer dur_1_abd", "Bearer dur_1_abcd", "Basic dur_1_abc"] {
            assert_eq!(with(wrong), Some(Code::Unauthenticated), "{wrong:?}");
        }
        assert_eq!(code(auth.caller(&tcp("127.0.0.1:9"), &HeaderMap::new())), Some(Code::Unauthenticated));
        // From elsewhere it may have been read on the way.
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, "Bearer dur_1_abc".parse().expect("a header"));
        for (from, wanted) in [
            ("[::1]:9", None),
            ("[::ffff:127.0.0.1]:9", None),
            ("10.0.0.1:9", Some(Code::Unauthenticated)),
            ("[::ffff:10.0.0.1]:9", Some(Code::Unauthenticated)),
        ] {
            assert_eq!(code(auth.caller(&tcp(from), &headers)), wanted, "{from}");
        }
        // Without a token nothing is right, not even nothing.
        let none = self::auth(0, None);
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, "Bearer ".parse().expect("a header"));
        assert_eq!(code(none.caller(&tcp("127.0.0.1:9"), &headers)), Some(Code::Unauthenticated));
    }
}
