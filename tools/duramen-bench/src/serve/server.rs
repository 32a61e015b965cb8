//! What every server under measurement offers.

use std::future::Future;
use std::net::TcpListener;
use std::path::Path;
use std::pin::Pin;

use tokio::runtime::Runtime;

use super::Serve;
use crate::engine::{Result, Row};

/// A server, and how it is started on an empty directory.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) setting: &'static str,
    pub(super) start: fn(&Path, &Serve) -> Result<Box<dyn Server>>,
}

/// A running server.
pub(super) trait Server {
    /// The process whose time counts, with its children.
    fn process(&self) -> u32;

    /// A writer for each task.
    fn writers(&self, runtime: &Runtime, tasks: usize, connections: usize) -> Result<Vec<Box<dyn Writer>>>;

    /// How many rows there are.
    fn count(&self) -> Result<u64>;

    /// Stops it in order.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// What one task does.
pub(super) trait Writer: Send {
    /// Stores a new row. It is durable when the future is done.
    fn put<'a>(&'a mut self, row: Row<'a>) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;
}

/// A port of this machine that was free a moment ago.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
