//! Tests of `recovery`.
