//! Measurements of a disk, and reports as HTML.
//!
//! - [`measure`] times what a durable write costs, call by call.
//! - [`report`] builds one HTML file of text, tables and charts, without scripts.
//!
//! Nothing here is part of a database. Each module is used without the other.

pub mod measure;
pub mod report;
