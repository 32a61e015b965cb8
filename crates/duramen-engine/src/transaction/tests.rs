//! Tests of `transaction`.
