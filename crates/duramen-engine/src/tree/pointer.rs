//! A page pointer with what else a parent's page holds about a child: its reduction, and the patch of a leaf.

use std::fmt;
use std::sync::Arc;

use super::stored_patch::StoredPatch;
use crate::data_file::PagePointer;

/// Longest reduction kept without an allocation. A slot stays as small with this as without.
const SHORT_BYTES: usize = 22;

/// Where a node lies on disk, its reduction and its patch, as its parent's page holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodePointer {
    /// The page.
    pub page: PagePointer,
    /// The reduction of everything below, if it was known when the page was written.
    pub reduction: Reduction,
    /// What has changed in a leaf since its page was written.
    pub patch: Option<Arc<StoredPatch>>,
}

impl NodePointer {
    /// To a page that holds all of its node.
    pub(crate) fn whole(page: PagePointer, reduction: Reduction) -> NodePointer {
        NodePointer { page, reduction, patch: None }
    }

    /// Bytes of its patch; 0 without one.
    pub(crate) fn patch_bytes(&self) -> usize {
        self.patch.as_ref().map_or(0, |patch| patch.bytes().len())
    }
}

/// The reduction of a subtree, or that it is not known.
///
/// There is one for each child of each inner node in memory, so a short one is kept inline.
#[derive(Clone, Default)]
pub(crate) struct Reduction(Kept);

#[derive(Clone, Default)]
enum Kept {
    #[default]
    Unknown,
    Short(u8, [u8; SHORT_BYTES]),
    Long(Arc<[u8]>),
}

const _: () = assert!(SHORT_BYTES <= u8::MAX as usize, "the length of a short reduction has 8 bits");
const _: () =
    assert!(size_of::<Reduction>() == SHORT_BYTES + 2, "besides its bytes: a tag, and their length");

impl Reduction {
    /// Not known.
    pub(crate) const UNKNOWN: Reduction = Reduction(Kept::Unknown);

    /// A known one.
    pub(crate) fn of(bytes: &[u8]) -> Reduction {
        match u8::try_from(bytes.len()) {
            Ok(length) if bytes.len() <= SHORT_BYTES => {
                let mut short = [0; SHORT_BYTES];
                short[..bytes.len()].copy_from_slice(bytes);
                Reduction(Kept::Short(length, short))
            }
            _ => Reduction(Kept::Long(Arc::from(bytes))),
        }
    }

    /// Its bytes, if it is known.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Kept::Unknown => None,
            Kept::Short(length, bytes) => Some(&bytes[..usize::from(*length)]),
            Kept::Long(bytes) => Some(bytes),
        }
    }

    /// Approximate bytes of memory on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.0 {
            Kept::Unknown | Kept::Short(..) => 0,
            Kept::Long(bytes) => bytes.len() + 2 * size_of::<usize>(),
        }
    }
}

impl PartialEq for Reduction {
    fn eq(&self, other: &Reduction) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Reduction {}

impl fmt::Debug for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reduction").field(&self.bytes()).finish()
    }
}
