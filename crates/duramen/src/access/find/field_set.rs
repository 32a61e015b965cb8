//! Some fields of documents, and where they are among the values of a shape.

use super::path::Path;
use crate::catalog::schema::Schema;
use crate::catalog::shapes::Shape;

/// Names of fields of documents, each once.
#[derive(Debug, Clone, Default)]
pub(super) struct FieldSet {
    names: Vec<String>,
    /// The shape of the document that was read last.
    shape: Option<u32>,
    /// The positions of the fields among its values, rising.
    positions: Vec<usize>,
}

impl FieldSet {
    pub(super) fn add(&mut self, path: &Path) {
        if !self.names.iter().any(|field| field == path.field()) {
            self.names.push(path.field().to_owned());
        }
    }

    /// Whether it has a field, under any name that the field has had.
    pub(super) fn has(&self, schema: &Schema, name: &[u8]) -> bool {
        self.names.iter().any(|own| schema.same_field(name, own.as_bytes()))
    }

    /// The positions of its fields among the values of a shape, rising, and whether the document before this
    /// one was of the same shape.
    pub(super) fn positions(&mut self, schema: &Schema, shape: &Shape) -> (&[usize], bool) {
        let is_as_before = self.shape == Some(shape.number());
        if !is_as_before {
            let names = shape.layout().names();
            let wanted = (0..names.len()).filter(|at| self.has(schema, names[*at].as_bytes())).collect();
            (self.positions, self.shape) = (wanted, Some(shape.number()));
        }
        (&self.positions, is_as_before)
    }

    /// The document that was read last has no shape.
    pub(super) fn forget_positions(&mut self) {
        self.shape = None;
    }
}
