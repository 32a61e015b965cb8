//! What a view is: a function from a document to rows, and reductions over them.
//!
//! Owns the definitions of views as data, and the computation of rows and reductions from bytes. Knows no
//! catalogue, no transaction and no type. Queries and maintenance of views are in the layers above.

pub(crate) mod key_field;
pub(crate) mod kinds;
mod laws;
pub(crate) mod monoid;
pub(crate) mod nested;
pub mod reduce;
pub(crate) mod reducer;
pub(crate) mod shown;
pub(crate) mod sketch;
pub(crate) mod spec;
pub mod sums;

pub use crate::access::views::View;
pub use crate::access::views::build::Progress;
pub use crate::access::views::by_name::{DocumentView, ReducedPart, ViewReduction, ViewRow, ViewRowIter};
pub use crate::access::views::coded::{Code, CodedView, Emitter, RowValue};
pub use crate::access::views::found::{Groups, ViewDocs, ViewEntry, ViewGroups, ViewIter};
pub use crate::access::views::query::ViewQuery;
pub use crate::access::views::state::{ViewPhase, ViewState};
pub use key_field::KeyField;
pub use kinds::Reduce;
pub use laws::assert_monoid;
pub use monoid::Monoid;
pub use sketch::Distribution;
pub use spec::ViewSpec;
