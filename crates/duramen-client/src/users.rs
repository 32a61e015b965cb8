//! Calls about users, tokens and the audit, which wait for their answers. They need the right `admin`.

use duramen::error::Result;
use duramen_proto::v1;

use crate::client::{Client, DEADLINE, in_doubt_if_lost, with_deadline};

impl Client {
    /// The users of the database, and their tokens without the secrets.
    ///
    /// # Errors
    /// `Forbidden` (E1102) without the right; those of a [read](duramen::Error#reads); `Unreachable` (E1111)
    /// if the connection is lost.
    pub fn users(&self) -> Result<v1::UsersReply> {
        let mut admin = self.admin();
        self.wait(async move { admin.users(with_deadline(v1::UsersRequest {}, DEADLINE)).await })
    }

    /// Adds a user, or gives one that is there other rights and names in certificates, at once.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) for a name or a right that is none; `AlreadyExists` (E0210) and `NoSuchKey`
    /// (E0903) if the user is there, or is not, and should not be, or should; `AlreadyExists` for another
    /// user's name in certificates; `Forbidden` (E1102) without the right; those of a
    /// [commit](duramen::Error#commits).
    pub fn put_user(&self, user: v1::User, is_new: bool) -> Result<()> {
        let mut admin = self.admin();
        let request = v1::PutUserRequest { user: Some(user), is_new };
        let call = async move { admin.put_user(with_deadline(request, DEADLINE)).await };
        self.wait(call).map_err(in_doubt_if_lost).map(drop)
    }

    /// Removes a user and its tokens, at once. Returns whether it was there.
    ///
    /// # Errors
    /// `Forbidden` (E1102) without the right; those of a [commit](duramen::Error#commits).
    pub fn drop_user(&self, name: &str) -> Result<bool> {
        let mut admin = self.admin();
        let request = v1::DropUserRequest { name: name.to_owned() };
        let call = async move { admin.drop_user(with_deadline(request, DEADLINE)).await };
        Ok(self.wait(call).map_err(in_doubt_if_lost)?.was_there)
    }

    /// Makes a token for a user, which is valid for so many seconds; 0: 90 days. Its text is told this once.
    ///
    /// # Errors
    /// `NoSuchKey` (E0903) without such a user; `Forbidden` (E1102) without the right; those of a
    /// [commit](duramen::Error#commits).
    pub fn add_token(&self, user: &str, valid_seconds: u64) -> Result<v1::AddTokenReply> {
        let mut admin = self.admin();
        let request = v1::AddTokenRequest { user: user.to_owned(), valid_seconds };
        let call = async move { admin.add_token(with_deadline(request, DEADLINE)).await };
        self.wait(call).map_err(in_doubt_if_lost)
    }

    /// How far the audit has come, as a row of the database says.
    ///
    /// # Errors
    /// `Forbidden` (E1102) without the right; those of a [read](duramen::Error#reads); `Unreachable` (E1111)
    /// if the connection is lost.
    pub fn audit(&self) -> Result<v1::AuditReply> {
        let mut admin = self.admin();
        self.wait(async move { admin.audit(with_deadline(v1::AuditRequest {}, DEADLINE)).await })
    }

    /// Ends a token, at once. Returns whether it was there.
    ///
    /// # Errors
    /// `Forbidden` (E1102) without the right; those of a [commit](duramen::Error#commits).
    pub fn revoke_token(&self, id: &str) -> Result<bool> {
        let mut admin = self.admin();
        let request = v1::RevokeTokenRequest { id: id.to_owned() };
        let call = async move { admin.revoke_token(with_deadline(request, DEADLINE)).await };
        Ok(self.wait(call).map_err(in_doubt_if_lost)?.was_there)
    }
}
