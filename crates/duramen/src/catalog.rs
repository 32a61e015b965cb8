//! What is known of each collection: its schema, its catalogue entry, and the cache of both.

pub(crate) mod cache;
pub mod cell;
pub(crate) mod entries;
pub(crate) mod forms;
pub(crate) mod ids;
pub(crate) mod progress;
pub(crate) mod reference;
pub(crate) mod rows;
pub mod schema;
pub(crate) mod shapes;
