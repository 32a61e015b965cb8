//! What is stored: collections, their keys, and the views that answer the lists and counts.
//!
//! Owns no logic. Key-values and blobs have no type here; `sessions` and `attachments` name their namespaces.

use duramen::prelude::*;

/// A person with an account. No two users have the same e-mail address.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "users", view(UserByEmail, key = email, unique))]
pub struct User {
    /// Assigned by `push`.
    #[key(assigned)]
    pub id: u64,
    /// In lower case.
    pub email: String,
    /// As others see it.
    pub name: String,
    /// When the account was made.
    pub joined: Time,
}

/// How far a ticket is. Stored and ordered by name, so variants may be added anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Key)]
#[key(by_name)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Not begun.
    Open,
    /// Being worked on.
    InProgress,
    /// Nothing is left to do.
    Done,
}

/// How soon a ticket is needed. Stored and ordered by number, so `Max` is the most urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Key)]
#[key(by_number)]
#[serde(into = "u8", try_from = "u8")]
pub enum Priority {
    /// Whenever there is time.
    Low = 1,
    /// In its turn.
    Normal = 2,
    /// Before all others.
    Urgent = 3,
}

/// A ticket. The view by assignee also has rows for tickets without one (`nulls`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(
    name = "tickets",
    view(TicketsByStatus, key = status, reduce = Count),
    view(TicketsByAssignee, key = (assignee, status), nulls, value = priority, reduce = (Count, Max))
)]
pub struct Ticket {
    /// Assigned by `push`.
    #[key(assigned)]
    pub id: u64,
    /// One line.
    pub title: String,
    /// The description.
    pub text: String,
    /// How far it is.
    pub status: Status,
    /// How soon it is needed.
    pub priority: Priority,
    /// The user that created it.
    pub author: u64,
    /// The user that works on it.
    pub assignee: Option<u64>,
    /// When it was created.
    pub created: Time,
}

/// A comment. The comments of a ticket are a range of keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "comments")]
pub struct Comment {
    /// The ticket.
    #[key]
    pub ticket: u64,
    /// Counts the comments of the ticket, from 1.
    #[key]
    pub number: u32,
    /// The user that wrote it.
    pub author: u64,
    /// What it says.
    pub text: String,
    /// When it was written.
    pub written: Time,
}

/// The record of an attachment. Its bytes are the blob with the same key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "attachments")]
pub struct Attachment {
    /// The ticket.
    #[key]
    pub ticket: u64,
    /// Counts the attachments of the ticket, from 1.
    #[key]
    pub number: u32,
    /// The user that uploaded it.
    pub author: u64,
    /// The name of the file.
    pub name: String,
    /// As the uploader gave it.
    pub content_type: String,
    /// How many bytes the blob has.
    pub bytes: u64,
    /// The hash of the bytes, in hexadecimal.
    pub sha256: String,
}

/// Work outside of the database. A job is deleted once it is done, so a crash repeats it (at least once).
///
/// A job that was given up has no due time, so the view does not have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Collection)]
#[collection(name = "jobs", view(JobsByDue, key = due))]
pub struct Job {
    /// Assigned by `push`.
    #[key(assigned)]
    pub id: u64,
    /// What to do.
    pub task: Task,
    /// When to do it; `None` if it was given up.
    pub due: Option<Time>,
    /// How often it has failed.
    pub failures: u32,
    /// Why it failed last.
    pub last_failure: Option<String>,
}

/// What a job does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Mails a login code.
    MailCode {
        /// To this address.
        email: String,
        /// The code.
        code: String,
    },
    /// Mails a user that a ticket is now theirs.
    MailAssignee {
        /// The user.
        user: u64,
        /// The ticket.
        ticket: u64,
    },
}
