//! Tests of `data_file`.
