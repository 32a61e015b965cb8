//! Logging in without a password: a code that is mailed, then a session. Both are key-values that expire.
//!
//! Owns the namespaces `login codes` (by e-mail address) and `sessions` (by token). No handler deletes what
//! has expired: the database does, and never returns it after its time.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use duramen::prelude::*;
use serde_json::json;
use uuid::Uuid;

use crate::App;
use crate::errors::{Answer, ApiError};
use crate::extract::{Input, email};
use crate::jobs;
use crate::model::{Task, UserByEmail};

const CODES: &str = "login codes";
const SESSIONS: &str = "sessions";

/// Wrong guesses before a code is deleted.
const GUESSES_MAX: u8 = 5;

#[derive(Debug, Serialize, Deserialize)]
struct LoginCode {
    user: u64,
    code: String,
    guesses_left: u8,
}

/// What asks for a code.
#[derive(Deserialize)]
pub struct Login {
    email: String,
}

/// `POST /logins`. The code and the job that mails it are one transaction.
///
/// The answer does not reveal whether the address has a user. While a code is valid no second one is mailed.
///
/// # Errors
/// 400 for no address.
pub async fn mail_code(State(app): State<App>, Input(login): Input<Login>) -> Answer<StatusCode> {
    let email = email(&login.email)?;
    let lifetime = Ttl::from(app.settings.code_lifetime);
    // The first eight hexadecimal digits are random in a UUID of version 4.
    let code = Uuid::new_v4().simple().to_string()[..8].to_uppercase();
    let job_added = app.job_added.clone();
    app.db
        .transact(move |tx| {
            let Some(user) = tx.view::<UserByEmail>().key(&email).first_doc()? else { return Ok(()) };
            let known = LoginCode { user: user.id, code: code.clone(), guesses_left: GUESSES_MAX };
            if tx.kv(CODES).put_if_absent(&email, &known, lifetime)? {
                let task = Task::MailCode { email: email.clone(), code: code.clone() };
                jobs::push(tx, &job_added, task)?;
            }
            Ok(())
        })
        .await?;
    Ok(StatusCode::ACCEPTED)
}

/// What exchanges a code for a session.
#[derive(Deserialize)]
pub struct Credentials {
    email: String,
    code: String,
}

/// `POST /sessions`. Answers with the token of the session.
///
/// # Errors
/// 401 for a code that is wrong, used or expired.
pub async fn open(State(app): State<App>, Input(given): Input<Credentials>) -> Answer<impl IntoResponse> {
    let (email, lifetime) = (email(&given.email)?, Ttl::from(app.settings.session_lifetime));
    let token = Uuid::new_v4();
    let user = app
        .db
        .transact(move |tx| {
            let Some(known) = tx.kv(CODES).get::<LoginCode>(&email)? else { return Ok(None) };
            if known.code == given.code.trim().to_uppercase() {
                tx.kv(CODES).delete(&email)?;
                tx.kv(SESSIONS).put_with(token, &known.user, lifetime)?;
                return Ok(Some(known.user));
            }
            // A result, not an error, which would also undo the counting.
            let guesses_left = known.guesses_left - 1;
            if guesses_left == 0 {
                tx.kv(CODES).delete(&email)?;
            } else {
                // With the expiry that it has.
                tx.kv(CODES).put_with(&email, &LoginCode { guesses_left, ..known }, Ttl::keep())?;
            }
            Ok(None)
        })
        .await?;
    let user = user.ok_or_else(|| unauthorized("the code is wrong or has expired: ask for a new one"))?;
    Ok((StatusCode::CREATED, Json(json!({ "token": token.to_string(), "user": user }))))
}

/// `DELETE /sessions`: ends the session that the request is made with.
///
/// # Errors
/// 401 without a session.
pub async fn close(State(app): State<App>, session: Signed) -> Answer<StatusCode> {
    app.db.run(move |db| db.kv(SESSIONS).delete(session.token)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The user of a request, by its header `Authorization: Bearer TOKEN`.
pub struct Signed {
    /// The user.
    pub user: u64,
    token: Uuid,
}

impl FromRequestParts<App> for Signed {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Answer<Signed> {
        let value = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| Uuid::try_parse(value.strip_prefix("Bearer ")?).ok());
        let token = token.ok_or_else(|| unauthorized("send a session's token as a bearer token"))?;
        let user = app.db.run(move |db| db.kv(SESSIONS).get::<u64>(token)).await?;
        let user = user.ok_or_else(|| unauthorized("the session has ended: log in again"))?;
        Ok(Signed { user, token })
    }
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, message)
}
