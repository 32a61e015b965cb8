//! Opening and closing a database, and the work behind the scenes.

pub(crate) mod background;
pub(crate) mod backup;
pub mod migrate;
pub(crate) mod options;
pub(crate) mod recover;
pub(crate) mod verify;
pub(crate) mod views;
