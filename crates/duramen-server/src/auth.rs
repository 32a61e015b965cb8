//! The user at the other end of a connection, and whether that user may call.
//!
//! On the socket the kernel says the user. On TCP each call carries the token. There is one user so far, the
//! administrator: the owner of the database's directory, and root.

use duramen::error::{Code, Error, Result};
use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The user that the kernel shows for one it cannot name here, in a container for example.
const OVERFLOW_UID: u32 = 65_534;

/// The name of the one user.
pub(crate) const ADMIN: &str = "admin";

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A process of this user, on the socket.
    Local { uid: u32 },
    /// A process of any user of this machine, by TCP.
    Tcp,
}

/// The users that may call.
#[derive(Debug)]
pub(crate) struct Auth {
    /// The owner of the directory.
    pub(crate) owner: u32,
    /// The token of TCP; without one there are no listeners.
    pub(crate) token: Option<String>,
}

impl Auth {
    /// The calling user.
    ///
    /// # Errors
    /// `Forbidden` (E1102) for another user's process; `Unauthenticated` (E1101) without the right token.
    pub(crate) fn user(&self, peer: Peer, headers: &HeaderMap) -> Result<&'static str> {
        match peer {
            Peer::Local { uid } => self.local(uid),
            Peer::Tcp => self.by_token(headers),
        }
    }

    fn local(&self, uid: u32) -> Result<&'static str> {
        if uid == 0 || (uid == self.owner && uid != OVERFLOW_UID) {
            return Ok(ADMIN);
        }
        Err(Error::new(Code::Forbidden, format!("the user {uid} may not use this database")).with_hint(
            format!("the database belongs to the user {}: run the command as that one", self.owner),
        ))
    }

    fn by_token(&self, headers: &HeaderMap) -> Result<&'static str> {
        let refused = |why: &str| {
            Err(Error::new(Code::Unauthenticated, format!("the call has {why}")).with_hint(
                "send the token in DB/serve.token as `authorization: Bearer TOKEN`; the command line takes it from DURAMEN_TOKEN, or by `--at duramen://HOST:PORT?token_file=DB/serve.token`",
            ))
        };
        let Some(given) = headers.get(AUTHORIZATION) else { return refused("no token") };
        let given = given.as_bytes();
        let token = match given.split_at_checked(7) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
            _ => return refused("no token of the form `Bearer TOKEN`"),
        };
        match &self.token {
            Some(wanted) if is_same(wanted.as_bytes(), token) => Ok(ADMIN),
            _ => refused("a token that is not valid here"),
        }
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

    fn code(done: Result<&'static str>) -> Option<Code> {
        done.err().map(|error| error.code())
    }

    #[test]
    fn the_owner_and_root_may_call_and_others_may_not() {
        let auth = Auth { owner: 1000, token: None };
        let of = |uid| code(auth.user(Peer::Local { uid }, &HeaderMap::new()));
        assert_eq!((of(0), of(1000)), (None, None));
        assert_eq!((of(1001), of(OVERFLOW_UID)), (Some(Code::Forbidden), Some(Code::Forbidden)));
        let nobodys = Auth { owner: OVERFLOW_UID, token: None };
        let of = |uid| code(nobodys.user(Peer::Local { uid }, &HeaderMap::new()));
        assert_eq!(of(OVERFLOW_UID), Some(Code::Forbidden));
    }

    #[test]
    fn tcp_wants_the_token() {
        let auth = Auth { owner: 1000, token: Some("dur_1_abc".to_owned()) };
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, value.parse().expect("a header"));
            code(auth.user(Peer::Tcp, &headers))
        };
        assert_eq!(with("Bearer dur_1_abc"), None);
        assert_eq!(with("bearer dur_1_abc"), None);
        for wrong in ["", "Bearer", "Bearer ", "Bearer dur_1_abd", "Bearer dur_1_abcd", "Basic dur_1_abc"] {
            assert_eq!(with(wrong), Some(Code::Unauthenticated), "{wrong:?}");
        }
        assert_eq!(code(auth.user(Peer::Tcp, &HeaderMap::new())), Some(Code::Unauthenticated));
        // Without a token nothing is right, not even nothing.
        let none = Auth { owner: 0, token: None };
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, "Bearer ".parse().expect("a header"));
        assert_eq!(code(none.user(Peer::Tcp, &headers)), Some(Code::Unauthenticated));
    }
}
