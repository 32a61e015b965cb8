//! The library as a program uses it: a database on a real directory or in memory.
#![allow(clippy::disallowed_methods, reason = "tests use real directories and threads")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may")]

mod absent_fields;
mod assigned;
#[cfg(feature = "async")]
mod asynchronous;
#[cfg(feature = "async")]
mod asynchronous_methods;
mod background;
mod backup;
mod blobs;
mod changes;
mod checking;
mod coded;
mod collections;
mod compact;
mod compile_errors;
mod directories;
mod enums;
mod find;
mod find_pages;
mod find_threads;
mod flights;
mod golden;
mod golden_stores;
mod golden_typed;
mod grouping;
mod inside;
mod insides;
mod key_types;
mod key_values;
mod left_out;
mod lent_documents;
mod migrations;
mod mirrors;
mod model;
mod monoids;
mod nulls;
mod observing;
mod open_transactions;
mod ordering;
mod page_scan;
mod queries;
mod read_as;
mod read_where_stored;
mod reduced_groups;
mod references;
mod refusals;
mod repair;
mod reports;
mod row_batches;
mod schema_change;
mod select;
mod shapes;
mod sketches;
mod sync_method;
mod transactions;
mod tutorial;
mod typed;
mod typed_flights;
mod typed_tables;
mod under_fire;
mod view_items;
mod view_keys;
mod views;
mod views_by_name;
