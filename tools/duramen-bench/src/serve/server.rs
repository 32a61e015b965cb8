//! What every server under measurement offers.

use std::future::Future;
use std::net::TcpListener;
use std::path::Path;
use std::pin::Pin;

use duramen_disk::memory::mixed;
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
    /// The processes whose time counts, with their children.
    fn processes(&self) -> Vec<u32>;

    /// A writer for each task.
    fn writers(&self, runtime: &Runtime, tasks: usize, connections: usize) -> Result<Vec<Box<dyn Writer>>>;

    /// How many rows there are.
    fn count(&self) -> Result<u64>;

    /// A reader for each task; none if the reads of the server are not measured.
    fn readers(&self, _: &Runtime, _: usize, _: usize) -> Result<Vec<Box<dyn Reader>>> {
        Err("reads of this server are not measured".into())
    }

    /// A teller for each task; none if the server has no such transactions, or they are not measured.
    fn tellers(&self, _: &Runtime, _: usize, _: usize) -> Result<Vec<Box<dyn Teller>>> {
        Err("transactions of several messages of this server are not measured".into())
    }

    /// Stores the accounts, each with the same balance.
    fn open_accounts(&self) -> Result<()> {
        Err("this server has no accounts".into())
    }

    /// The sum of all accounts.
    fn total(&self) -> Result<u64> {
        Err("this server has no accounts".into())
    }

    /// Stops it in order.
    fn stop(self: Box<Self>) -> Result<()>;
}

/// What a future of a task returns.
pub(super) type Done<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// What one task does.
pub(super) trait Writer: Send {
    /// Stores a new row. It is durable when the future is done.
    fn put<'a>(&'a mut self, row: Row<'a>) -> Done<'a>;
}

/// A task that reads rows.
pub(super) trait Reader: Send {
    /// Reads the row with this key, as it is after every put that was answered. A future that is done has
    /// found this value.
    fn get<'a>(&'a mut self, row: Row<'a>) -> Done<'a>;
}

/// A task that moves money.
pub(super) trait Teller: Send {
    /// Reads two accounts, one after the other, then stores both with other balances: one transaction, which
    /// runs again after a conflict. It is durable when the future is done.
    fn transfer(&mut self, transfer: Transfer) -> Done<'_>;
}

/// From an account to another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) cents: i64,
}

pub(super) const ACCOUNTS: i64 = 100_000;
pub(super) const BALANCE: i64 = 1_000;

/// Accounts of a transaction that opens them.
pub(super) const OPENED_TOGETHER: i64 = 1_000;

impl Transfer {
    /// The transfer of a number: between two random accounts.
    pub(super) fn of(seed: u64, number: u64) -> Transfer {
        let drawn = |part: u64| mixed(mixed(seed ^ number) ^ part);
        let account = |part| i64::try_from(drawn(part) % ACCOUNTS.unsigned_abs()).unwrap_or(0);
        let (from, to) = (account(1), account(2));
        let to = if from == to { (to + 1) % ACCOUNTS } else { to };
        Transfer { from, to, cents: i64::try_from(drawn(3) % 10).unwrap_or(0) + 1 }
    }
}

/// A port of this machine that was free a moment ago.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
