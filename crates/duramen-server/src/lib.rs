//! Serves a database to other processes, on this machine and on others, over gRPC.
//!
//! ```no_run
//! # fn main() -> duramen::Result<()> {
//! let db = duramen::Db::open("shop.duramen")?;
//! let _server = duramen_server::local(&db)?;
//! // From now on `duramen get shop.duramen ...` asks this program, until `_server` is dropped.
//! # Ok(()) }
//! ```
//!
//! The server is the program's own: it uses the open database, and nothing is written by another process.
//! Every promise of the library holds for its clients.
//!
//! # The users that may call
//! The socket `DB/serve.sock` belongs to the user of the process. The kernel says which user is at the other
//! end: the directory's owner and root may do everything, others nothing. By TCP (see [`Builder::listen`])
//! each call carries a token of a [user](users), or its connection has shown a certificate of one; from this
//! machine it may carry the token in `DB/serve.token`, a file that only the owner can read, and may then do
//! everything. An address that other machines reach needs [TLS](Builder::tls) and a user.
//!
//! # Modules
//!
//! | module | task |
//! |---|---|
//! | `server` | starting, stopping, the threads |
//! | `discover` | socket, token and `serve.json` in the directory of the database |
//! | `listen`, `tls`, `connection` | accepting connections; TLS and HTTP/2 on each |
//! | `auth`, `audit` | the user at the other end; what is told of it |
//! | `route`, `call` | a call: its deadline, its place, its service |
//! | `cluster` | of a node: reads see what was acknowledged anywhere, writes are the leader's |
//! | `limit` | bytes and places, charged before they are used |
//! | `data`, `blobs`, `schema`, `feed`, `admin` | the services |
//! | `on_demand`, `page` | streams whose messages are made when they are wanted; page tokens |
//! | `nice` | the processor: point reads and commits come before scans |

#![allow(
    clippy::disallowed_methods,
    reason = "sockets, the files that name them, those of the audit and of TLS, and the runtime are the server's own; those of the database stay behind the library"
)]

mod admin;
pub mod audit;
mod auth;
mod blobs;
mod call;
mod cluster;
mod connection;
mod data;
mod discover;
mod feed;
mod limit;
mod listen;
mod nice;
mod on_demand;
mod page;
mod route;
mod schema;
mod server;
mod tls;
pub mod users;

pub use admin::facts;
pub use cluster::{Cluster, Doing, too_old};
pub use limit::Limits;
pub use server::{Builder, Server, local};
