//! Lists of tickets in pages, and counts. All of them are answered from views.
//!
//! Owns the form of pages: `{"items": [...], "next": "TOKEN"}`.

use axum::Json;
use axum::extract::State;
use duramen::prelude::*;
use duramen::{Code, Page, PageToken};

use crate::App;
use crate::errors::{Answer, ApiError};
use crate::extract::Params;
use crate::model::{Priority, Status, Ticket, TicketsByAssignee, TicketsByStatus};
use crate::sessions::Signed;

const PAGE_SIZE: usize = 20;
const PAGE_SIZE_MAX: usize = 100;

/// Which page of a list.
#[derive(Deserialize)]
pub struct PageParams {
    limit: Option<usize>,
    after: Option<String>,
}

impl PageParams {
    /// The size of the page and the token of the one before.
    ///
    /// # Errors
    /// 400 for a size out of bounds, or a text that is no token.
    pub fn checked(&self) -> Answer<(usize, Option<PageToken>)> {
        let size = self.limit.unwrap_or(PAGE_SIZE);
        if !(1..=PAGE_SIZE_MAX).contains(&size) {
            return Err(ApiError::invalid(format!("limit must be from 1 to {PAGE_SIZE_MAX}")));
        }
        let token = self.after.as_deref().map(str::parse).transpose().map_err(refused_token)?;
        Ok((size, token))
    }
}

/// A page of a list.
#[derive(Serialize)]
pub struct Listed<T> {
    items: Vec<T>,
    next: Option<PageToken>,
}

impl<T> Listed<T> {
    /// The answer to a query.
    ///
    /// # Errors
    /// 400 for the token of another list; those of a read.
    pub fn of(found: Result<Page<T>>) -> Answer<Json<Listed<T>>> {
        let Page { items, next } = found.map_err(refused_token)?;
        Ok(Json(Listed { items, next }))
    }
}

/// The client sent the token, so `InvalidArgument` is about it.
fn refused_token(error: Error) -> ApiError {
    match error.code() {
        Code::InvalidArgument => ApiError::invalid(error.message()),
        _ => error.into(),
    }
}

/// Which tickets to list.
#[derive(Deserialize)]
pub struct TicketParams {
    status: Option<Status>,
    /// The id of a user, or `none`.
    assignee: Option<String>,
    // Not flattened: in a flattened struct the query's numbers would stay texts.
    limit: Option<usize>,
    after: Option<String>,
}

/// `GET /tickets?status=open&assignee=none&limit=20&after=TOKEN`, newest first.
///
/// # Errors
/// 400 for an invalid parameter or page token, 401.
pub async fn tickets(
    State(app): State<App>,
    _: Signed,
    Params(params): Params<TicketParams>,
) -> Answer<Json<Listed<Ticket>>> {
    let TicketParams { status, assignee, limit, after } = params;
    let (size, after) = PageParams { limit, after }.checked()?;
    let assignee = assignee.as_deref().map(parse_assignee).transpose()?;
    let found = app.db.read(move |at| {
        let after = after.as_ref();
        let by_assignee = at.view::<TicketsByAssignee>().reverse();
        match (assignee, status) {
            (None, None) => at.collection::<Ticket>().reverse().page(size, after),
            (None, Some(status)) => at.view::<TicketsByStatus>().key(status).reverse().page_docs(size, after),
            (Some(assignee), None) => by_assignee.prefix(assignee).page_docs(size, after),
            (Some(assignee), Some(status)) => by_assignee.key((assignee, status)).page_docs(size, after),
        }
    });
    Listed::of(found.await)
}

fn parse_assignee(text: &str) -> Answer<Option<u64>> {
    match text {
        "none" => Ok(None),
        id => id.parse().map(Some).map_err(|_| ApiError::invalid("assignee must be an id, or none")),
    }
}

/// How many tickets there are.
#[derive(Serialize)]
pub struct Counts {
    by_status: Vec<StatusCount>,
    by_assignee: Vec<AssigneeCount>,
}

#[derive(Serialize)]
struct StatusCount {
    status: Status,
    count: u64,
}

#[derive(Serialize)]
struct AssigneeCount {
    assignee: Option<u64>,
    status: Status,
    count: u64,
    highest_priority: Option<Priority>,
}

/// `GET /counts`. Both lists are of one state, and no ticket is read for them.
///
/// # Errors
/// 401.
pub async fn counts(State(app): State<App>, _: Signed) -> Answer<Json<Counts>> {
    let counts = app.db.read(|at| {
        let by_status = at.view::<TicketsByStatus>().group_by::<Status>()?;
        let by_status = by_status.into_iter().map(|(status, count)| StatusCount { status, count });
        let by_assignee = at.view::<TicketsByAssignee>().group_by::<(Option<u64>, Status)>()?;
        let by_assignee = by_assignee.into_iter().map(|((assignee, status), (count, highest_priority))| {
            AssigneeCount { assignee, status, count, highest_priority }
        });
        Ok(Counts { by_status: by_status.collect(), by_assignee: by_assignee.collect() })
    });
    Ok(Json(counts.await?))
}
