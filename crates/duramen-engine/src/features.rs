//! Incompatible features: what a build must know to read a database.
//!
//! Owns the bits of the superblock's third class of flags. A tree names the features that its entries need;
//! each checkpoint writes those of all its trees into its superblock. So a bit is set by the commit that
//! creates such a tree, is dropped with that commit, and returns with its replay (D9).

use std::fmt;
use std::ops::BitOr;

/// A flag of what a build must know to write to a database: it is a node of a cluster.
pub(crate) const NODE_OF_A_CLUSTER: u64 = 1;

/// A set of incompatible features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(u64);

impl Features {
    /// None.
    pub const NONE: Features = Features(0);

    /// Documents that name their shape instead of their fields.
    pub const SHAPES: Features = Features(1);

    /// Pages whose payload is an LZ4 block.
    pub const LZ4_PAGES: Features = Features(2);

    /// Inner nodes with patches of their leaves.
    pub const PATCHES: Features = Features(4);

    /// Features of pages; the others are of trees.
    const OF_PAGES: Features = Features(Features::LZ4_PAGES.0 | Features::PATCHES.0);

    /// Every feature that this build knows.
    pub const KNOWN: Features = Features(Features::SHAPES.0 | Features::OF_PAGES.0);

    /// The bits as they are stored.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Features from their stored bits; `None` if this build does not know one.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Features> {
        Features(bits).only(Features::KNOWN)
    }

    /// The features of a tree from their stored bits; `None` if this build knows no such tree.
    pub(crate) fn of_tree(bits: u64) -> Option<Features> {
        Features(bits).only(Features::SHAPES)
    }

    /// Those among them that pages have.
    pub(crate) fn of_pages(self) -> Features {
        Features(self.0 & Features::OF_PAGES.0)
    }

    /// These, if all of them are among others.
    fn only(self, others: Features) -> Option<Features> {
        others.contains(self).then_some(self)
    }

    /// Whether these are among them.
    #[must_use]
    pub fn contains(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Features::NONE
    }
}

impl BitOr for Features {
    type Output = Features;

    fn bitor(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [
            (Features::SHAPES, "shapes"),
            (Features::LZ4_PAGES, "compressed pages"),
            (Features::PATCHES, "patches"),
        ];
        let names: Vec<_> =
            named.into_iter().filter(|(one, _)| self.0 & one.0 != 0).map(|one| one.1).collect();
        f.write_str(&if names.is_empty() { "none".to_owned() } else { names.join(", ") })
    }
}
