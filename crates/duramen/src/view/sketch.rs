//! Sketches: reductions that are more than a number or an element.
//!
//! The output of a sketch is a function of its values, bit for bit, whatever their grouping and order. So the
//! bytes in a node do not depend on page splits.

mod distinct;
mod quantiles;
#[cfg(test)]
mod tests;
mod top;

pub(crate) use distinct::Distinct;
pub use quantiles::Distribution;
pub(crate) use quantiles::Quantiles;
pub(crate) use top::Top;

use crate::value::document::Value;
use crate::value::tuple::Encoder;

/// Collects values.
pub(crate) trait Sketch {
    /// Adds a value as it is stored; not null.
    ///
    /// # Errors
    /// A sentence about why the value is not valid here.
    fn value(&mut self, stored: &[u8]) -> Result<(), String>;

    /// Adds the output of another sketch, whose values come after; `None` for invalid bytes.
    fn merge(&mut self, bytes: &[u8]) -> Option<()>;

    /// Appends the output for all values, at least one. Its precision must be decided by now.
    fn write(&mut self, out: &mut Vec<u8>);
}

/// The element of a key that a value is, of at most `bytes_max` bytes.
pub(crate) fn element_of(value: &Value, bytes_max: usize) -> Result<Vec<u8>, String> {
    let element = value.to_element().ok_or("a view orders or counts a field that holds a map")?;
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes).element(&element).map_err(|error| error.message().to_owned())?;
    if bytes.len() > bytes_max {
        return Err(format!(
            "a view keeps the smallest or largest of values of up to {bytes_max} bytes, and this one has {}: \
             keep it as the last key field of a view instead, and take the first or last row",
            bytes.len()
        ));
    }
    Ok(bytes)
}

/// Decodes a stored value.
fn value_of(stored: &[u8]) -> Result<Value, String> {
    Value::from_stored(stored).map_err(|error| error.message().to_owned())
}
