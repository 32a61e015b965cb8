//! The one error type, re-exported from the engine: each kind implies what the caller can do.

pub use duramen_engine::error::{Code, Error, ErrorKind, Result};
