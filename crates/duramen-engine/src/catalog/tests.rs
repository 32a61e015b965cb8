//! Tests of `catalog`.
