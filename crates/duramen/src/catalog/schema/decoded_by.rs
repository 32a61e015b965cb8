//! The shapes by which the documents of a collection are decoded.
//!
//! They are those of the open database, and no part of the definition: two schemas with different ones are
//! equal.

use std::fmt;
use std::sync::{Arc, LazyLock};

use super::Schema;
use crate::catalog::shapes::Shapes;
use crate::value::msgpack::begins_with_a_shape;
use crate::value::version;

/// Of a schema that is not in a database.
static NONE: LazyLock<Shapes> = LazyLock::new(Shapes::default);

#[derive(Clone, Default)]
pub(super) struct DecodedBy(Option<Arc<Shapes>>);

impl fmt::Debug for DecodedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DecodedBy")
    }
}

impl PartialEq for DecodedBy {
    fn eq(&self, _: &DecodedBy) -> bool {
        true
    }
}

impl Eq for DecodedBy {}

impl Schema {
    /// The same collection in a database with these shapes.
    pub(crate) fn decoded_by(mut self, shapes: &Arc<Shapes>) -> Schema {
        self.decoded_by = DecodedBy(Some(Arc::clone(shapes)));
        self
    }

    /// Whether a stored document names a shape that is not there.
    pub(crate) fn lacks_shape_of(&self, stored: &[u8]) -> bool {
        let document = version::split(stored).map_or(stored, |(_, document)| document);
        begins_with_a_shape(document) && self.shapes().split(document).is_err()
    }

    /// The number of the shape that a stored document names, if it is there.
    pub(crate) fn shape_number_of(&self, stored: &[u8]) -> Option<u32> {
        let document = version::split(stored).map_or(stored, |(_, document)| document);
        let split = begins_with_a_shape(document).then(|| self.shapes().split(document));
        split?.ok().map(|(shape, _)| shape.number())
    }

    /// The shapes that its documents name.
    pub(crate) fn shapes(&self) -> &Shapes {
        self.decoded_by.0.as_deref().unwrap_or(&NONE)
    }
}
