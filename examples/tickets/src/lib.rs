//! A ticket tracker over HTTP, as a model of how to build on Duramen with axum.
//!
//! Owns the routes and the state of the handlers. Each other module owns one idea; README.md lists them. The
//! program adds nothing to the promises of the database: what a handler answered with success is on disk.

#![allow(clippy::print_stderr, reason = "a server reports what fails on standard error")]

pub mod attachments;
pub mod comments;
pub mod errors;
pub mod extract;
pub mod jobs;
pub mod lists;
pub mod mail;
pub mod model;
pub mod server;
pub mod sessions;
pub mod signal;
pub mod tickets;
pub mod times;
pub mod users;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use duramen::AsyncDb;

use errors::ApiError;
use server::Settings;
use signal::Signal;

/// What every handler has. Clones are cheap and share the database.
#[derive(Clone)]
pub struct App {
    /// The database.
    pub db: AsyncDb,
    /// Lifetimes and limits.
    pub settings: Arc<Settings>,
    /// Wakes the thread that takes jobs.
    pub job_added: Signal,
}

/// All routes.
pub fn routes(app: App) -> Router {
    Router::new()
        .route("/users", post(users::register))
        .route("/users/{id}", get(users::show))
        .route("/logins", post(sessions::mail_code))
        .route("/sessions", post(sessions::open).delete(sessions::close))
        .route("/tickets", get(lists::tickets).post(tickets::create))
        .route("/tickets/{id}", get(tickets::show).put(tickets::edit).delete(tickets::delete))
        .route("/tickets/{id}/comments", get(comments::list).post(comments::add))
        .route("/tickets/{id}/attachments", get(attachments::list).post(attachments::upload))
        .route("/tickets/{id}/attachments/{number}", get(attachments::download))
        .route("/counts", get(lists::counts))
        .fallback(async || ApiError::not_found("no page has this path"))
        .layer(DefaultBodyLimit::max(app.settings.json_bytes_max))
        .with_state(app)
}
