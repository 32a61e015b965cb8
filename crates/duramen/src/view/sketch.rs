//! Reductions that are more than a number or an element: what gathers values, and the bytes that it comes to.
//!
//! What a sketch writes is a function of the values it was given, however they were grouped and in whatever order they came, bit
//! for bit. So the bytes in a node say the same wherever pages are split, and joining needs no luck.

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

/// Values being gathered.
pub(crate) trait Sketch {
    /// Adds a value as it is stored; not null.
    ///
    /// # Errors
    /// A sentence about why it cannot be one of these values.
    fn value(&mut self, stored: &[u8]) -> Result<(), String>;

    /// Adds what another one wrote, whose values come behind; `None` if these bytes are nothing it wrote.
    fn merge(&mut self, bytes: &[u8]) -> Option<()>;

    /// Appends what all of them come to, at least one. Decides at the latest now how exact it can be in its bytes.
    fn write(&mut self, out: &mut Vec<u8>);
}

/// The element of a key that a value is, of at most so many bytes.
pub(crate) fn element_of(value: &Value, bytes_max: usize) -> Result<Vec<u8>, String> {
    let element = value.to_element().ok_or("a view orders or counts a field that holds a map")?;
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes).element(&element).map_err(|error| error.message().to_owned())?;
    if bytes.len() > bytes_max {
        return Err(format!(
            "a view keeps the smallest or largest of values of up to {bytes_max} bytes, and this one has {}",
            bytes.len()
        ));
    }
    Ok(bytes)
}

/// A stored value, read.
fn value_of(stored: &[u8]) -> Result<Value, String> {
    Value::from_stored(stored).map_err(|error| error.message().to_owned())
}
