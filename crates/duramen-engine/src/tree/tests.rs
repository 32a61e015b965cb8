//! The tree against a `BTreeMap`, with tiny nodes so that every boundary is passed.
