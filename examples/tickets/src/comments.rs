//! Comments: a range of keys for each ticket.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use duramen::prelude::*;

use crate::App;
use crate::errors::{Answer, ApiError};
use crate::extract::{Input, Named, Params};
use crate::lists::{Listed, PageParams};
use crate::model::Comment;
use crate::sessions::Signed;
use crate::tickets;

/// What adds a comment.
#[derive(Deserialize)]
pub struct NewComment {
    text: String,
}

/// `POST /tickets/{id}/comments`.
///
/// Two comments at once read the same last number. One of their transactions then runs again.
///
/// # Errors
/// 400 for an empty text, 401, 404.
pub async fn add(
    State(app): State<App>,
    author: Signed,
    Named(ticket): Named<u64>,
    Input(new): Input<NewComment>,
) -> Answer<impl IntoResponse> {
    if new.text.trim().is_empty() {
        return Err(ApiError::invalid("a comment needs a text"));
    }
    let written = Time::now();
    let comment = app
        .db
        .try_transact(move |tx| {
            tickets::check_exists(tx, ticket)?;
            let last: Option<Comment> = tx.collection().prefix(ticket).reverse().first()?;
            let number = last.map_or(1, |last| last.number + 1);
            let comment = Comment { ticket, number, author: author.user, text: new.text.clone(), written };
            tx.insert(&comment)?;
            Ok::<_, ApiError>(comment)
        })
        .await?;
    Ok((StatusCode::CREATED, Json(comment)))
}

/// `GET /tickets/{id}/comments`, oldest first, in pages.
///
/// # Errors
/// 400 for a wrong page token, 401.
pub async fn list(
    State(app): State<App>,
    _: Signed,
    Named(ticket): Named<u64>,
    Params(page): Params<PageParams>,
) -> Answer<Json<Listed<Comment>>> {
    let (size, after) = page.checked()?;
    let found = app.db.read(move |at| at.collection::<Comment>().prefix(ticket).page(size, after.as_ref()));
    Listed::of(found.await)
}
