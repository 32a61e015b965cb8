//! The server over HTTP on a loopback port, with its database in a real directory.

#![allow(clippy::disallowed_methods, reason = "tests start threads and programs, and bound their waiting")]
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it was set up")]

mod accounts;
mod client;
mod files;
mod program;
mod restarts;
mod site;
mod work;
