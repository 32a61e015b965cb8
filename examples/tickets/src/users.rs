//! Users: registering and showing them.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use duramen::prelude::*;

use crate::App;
use crate::errors::{Answer, ApiError};
use crate::extract::{Input, Named, email, line};
use crate::model::User;
use crate::sessions::Signed;

/// What registers a user.
#[derive(Deserialize)]
pub struct NewUser {
    email: String,
    name: String,
}

/// `POST /users`. Of two that register one address, the unique view refuses the second.
///
/// # Errors
/// 400 for an invalid field, 409 for an address that has a user.
pub async fn register(State(app): State<App>, Input(new): Input<NewUser>) -> Answer<impl IntoResponse> {
    let (email, name) = (email(&new.email)?, line("name", &new.name)?);
    let user = app.db.push(User { id: 0, email, name, joined: Time::now() }).await;
    let user = user.map_err(|error| {
        let is_taken = error.code() == duramen::Code::UniqueViolation;
        let error = ApiError::from(error);
        // The message of the database names the other user.
        if is_taken { error.because("this address has a user: log in") } else { error }
    })?;
    Ok((StatusCode::CREATED, [(header::LOCATION, format!("/users/{}", user.id))], Json(user)))
}

/// `GET /users/{id}`.
///
/// # Errors
/// 401 without a session, 404.
pub async fn show(State(app): State<App>, _: Signed, Named(id): Named<u64>) -> Answer<Json<User>> {
    app.db.get(id).await?.map(Json).ok_or_else(|| ApiError::not_found("no such user"))
}
