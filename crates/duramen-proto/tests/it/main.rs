//! Tests of the wire protocol, one binary.

mod mutations;
mod wire;
