//! Nodes of a Duramen cluster: consensus over the engine.
//!
//! Consensus is openraft's. Here it is fitted to the engine: its log is Raft's log of the engine
//! (`log_store`), its state machine is the database (`state`), and what it decides on is what the database
//! of the leader has ordered (`proposer`). `roles` opens and closes the order with the leadership. `net` and
//! `wire` carry its requests as bytes over any transport; `merge` makes them fewer.
//!
//! Of openraft only its runtimes are public, and nothing is on disk or on the wire.
//!
//! Reading order: [`Node`], `types`, `log_store`, `state`, `proposer`, `roles`, `net`.

mod change;
mod config;
mod copying;
mod detach;
mod join;
mod log_store;
mod members;
mod merge;
mod net;
mod node;
mod openings;
mod promote;
mod proposer;
mod read;
mod retain;
mod roles;
mod room;
mod running;
mod runtime;
mod seed;
mod state;
mod status;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod suite;
mod synced;
mod tcp;
mod tls;
mod types;
mod wire;

pub use copying::{CopyOf, copy_anew};
pub use detach::{Detached, detach, detach_on};
pub use duramen_engine::Ident;
pub use join::{Joining, Watch, join};
pub use net::{Called, Lane, Transport};
pub use node::{First, Members, Node, NodeError, Start};
pub use openraft_rt_tokio::TokioRuntime;
pub use running::{Begin, Run, Running};
pub use runtime::Runtime;
pub use status::{MemberStatus, NodeStatus};
pub use tcp::{Answers, TcpTransport, listen};
pub use tls::PeerTls;
pub use types::Peer;

/// One thread, a virtual clock, and a seed: what nodes run on in simulations.
#[cfg(feature = "simulation")]
pub mod simulation {
    pub use openraft_rt::{AsyncRuntime, Instant};
    pub use openraft_rt_sim::{SimInstant, SimRuntime};
}
