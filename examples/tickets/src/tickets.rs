//! Tickets: creating, showing, editing and deleting them.
//!
//! Owns optimistic edits: a client sends the revision that it has read, and the first of two edits wins.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use duramen::prelude::*;
use duramen::{Revision, Versioned};

use crate::App;
use crate::attachments;
use crate::errors::{Answer, ApiError};
use crate::extract::{Input, Named, etag, if_match, line};
use crate::model::{Comment, Priority, Status, Ticket, User};
use crate::sessions::Signed;

/// What creates a ticket.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTicket {
    title: String,
    #[serde(default)]
    text: String,
    priority: Option<Priority>,
    assignee: Option<u64>,
}

/// `POST /tickets`. Answers with the ticket and its revision as `ETag`.
///
/// # Errors
/// 400 for an invalid field or an unknown assignee, 401.
pub async fn create(
    State(app): State<App>,
    author: Signed,
    Input(new): Input<NewTicket>,
) -> Answer<impl IntoResponse> {
    let ticket = Ticket {
        id: 0,
        title: line("title", &new.title)?,
        text: new.text,
        status: Status::Open,
        priority: new.priority.unwrap_or(Priority::Normal),
        author: author.user,
        assignee: new.assignee,
        created: Time::now(),
    };
    let created: Versioned<Ticket> = app
        .db
        .try_transact(move |tx| {
            check_assignee(tx, ticket.assignee)?;
            let id = tx.push(ticket.clone())?.id;
            stored(tx, id)
        })
        .await?;
    let location = [(header::LOCATION, format!("/tickets/{}", created.document.id))];
    Ok((StatusCode::CREATED, location, etag(created.revision), Json(created.document)))
}

/// `GET /tickets/{id}`, with the revision as `ETag`.
///
/// # Errors
/// 401, 404.
pub async fn show(State(app): State<App>, _: Signed, Named(id): Named<u64>) -> Answer<impl IntoResponse> {
    let found = app.db.read(move |at| at.get_versioned::<Ticket>(id)).await?.ok_or_else(no_ticket)?;
    Ok((etag(found.revision), Json(found.document)))
}

/// The fields of a ticket that can be edited, all of them.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    title: String,
    text: String,
    status: Status,
    priority: Priority,
    assignee: Option<u64>,
}

/// `PUT /tickets/{id}` with `If-Match`.
///
/// # Errors
/// 400 for an invalid field or an unknown assignee, 401, 404, 412 after another edit, 428 without `If-Match`.
pub async fn edit(
    State(app): State<App>,
    _: Signed,
    Named(id): Named<u64>,
    headers: HeaderMap,
    Input(edit): Input<Edit>,
) -> Answer<impl IntoResponse> {
    let (read, title) = (if_match(&headers)?, line("title", &edit.title)?);
    let (revision, ticket) = app
        .db
        .try_transact(move |tx| {
            check_assignee(tx, edit.assignee)?;
            let Edit { text, status, priority, assignee, .. } = edit.clone();
            let before: Ticket = tx.get(id)?.ok_or_else(no_ticket)?;
            let ticket = Ticket { title: title.clone(), text, status, priority, assignee, ..before };
            let revision = tx.replace(&ticket, read)?;
            Ok::<_, ApiError>((revision, ticket))
        })
        .await?;
    Ok((etag(revision), Json(ticket)))
}

/// `DELETE /tickets/{id}` with `If-Match`: the ticket with its comments, attachments and their blobs.
///
/// # Errors
/// 401, 404, 412 after an edit, 428 without `If-Match`.
pub async fn delete(
    State(app): State<App>,
    _: Signed,
    Named(id): Named<u64>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    let read: Revision = if_match(&headers)?;
    app.db
        .try_transact(move |tx| {
            if stored(tx, id)?.revision != read {
                return Err(ApiError::stale());
            }
            tx.delete::<Ticket>(id)?;
            tx.delete_range::<Comment>(id..=id, u64::MAX)?;
            attachments::delete_all(tx, id)?;
            Ok(())
        })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses unless there is such a ticket. In a transaction, it then also conflicts with deleting the ticket.
///
/// # Errors
/// 404; those of a read.
pub fn check_exists(at: &impl LocalReads, id: u64) -> Answer<()> {
    at.get::<Ticket>(id)?.map(drop).ok_or_else(no_ticket)
}

fn stored(tx: &Transaction<'_>, id: u64) -> Answer<Versioned<Ticket>> {
    tx.get_versioned(id)?.ok_or_else(no_ticket)
}

fn check_assignee(tx: &Transaction<'_>, assignee: Option<u64>) -> Answer<()> {
    match assignee {
        Some(user) if tx.get::<User>(user)?.is_none() => {
            Err(ApiError::invalid(format!("no user has the id {user}")))
        }
        _ => Ok(()),
    }
}

fn no_ticket() -> ApiError {
    ApiError::not_found("no such ticket")
}
