//! Tests of `allocator`.
