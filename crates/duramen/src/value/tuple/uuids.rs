//! UUIDs as elements of keys: sixteen bytes, as serde writes them into documents.
//!
//! Views are made from the bytes of documents, which do not say that they are a UUID. So the element is that
//! of bytes, in keys of collections as well, and tools find the same document.

use uuid::Uuid;

use super::{AsElement, Element, Encoder, Key, OwnedElement, unexpected};
use crate::store::error::Result;
use crate::value::column::ColumnType;

impl AsElement for Uuid {
    fn append(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        encoder.bytes(self.as_bytes());
        Ok(())
    }
}

impl OwnedElement for Uuid {
    const COLUMN: ColumnType = ColumnType::Any;

    fn from_element(element: Element) -> Result<Self> {
        match &element {
            Element::Bytes(bytes) => Uuid::from_slice(bytes).ok(),
            _ => None,
        }
        .ok_or_else(|| unexpected(&element, "a UUID of 16 bytes"))
    }
}

impl Key for Uuid {
    fn write(&self, encoder: &mut Encoder<'_>) -> Result<()> {
        self.append(encoder)
    }
}
