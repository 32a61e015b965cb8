//! An inner node: separators in one block, children in chunks of slots. Its page codec is pure.
//!
//! Payload: child count (u16), level (u8), flags (u8), prefix length (u16), two zero bytes, prefix, then for
//! each child: separator suffix length (u16; the first child has none), suffix, pointer (36 bytes), entries
//! below (u64), reduction length (u16, 0xFFFF for "not known"), reduction. Where the flag [`HAS_PATCHES`] is
//! set, the length of the child's patch (u16, zero for none) and the patch follow.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::pointer::{NodePointer, Reduction};
use super::separators::Separators;
use super::slot::Slot;
use super::stored_patch::StoredPatch;
use crate::alarm::invariant;
use crate::data_file::{PAGE_HEADER_BYTES, POINTER_BYTES, Page, PageKind, PagePointer};
use crate::limits::{INNER_BYTES_MAX, INNER_CHILDREN_MIN, KEY_BYTES_MAX, REDUCTION_BYTES_MAX};
use crate::page_cache::{Meter, PatchCharge};

const FIXED_BYTES: usize = 8;

/// Flag of a page of height 1: children have patches. The flag 1 is reserved.
const HAS_PATCHES: u8 = 2;

/// Bytes of the length of a patch.
const PATCH_LENGTH_BYTES: usize = 2;

const UNKNOWN_REDUCTION: u16 = u16::MAX;

/// Upper bound for the bytes of a child in a page, without its separator and its reduction.
const CHILD_BYTES_MAX: usize = 64;

/// Bytes of a child in a page: length of the separator, pointer, entries below, length of the reduction.
const CHILD_FIXED_BYTES: usize = 2 + POINTER_BYTES + 8 + 2;

/// Estimated bytes of a reduction while none is known: those of a sum.
const USUAL_REDUCTION_BYTES: usize = 16;

/// Higher than any tree: a level of a tree has several times the nodes of the one above.
const LEVEL_MAX: u8 = 64;

/// More entries than any tree has. Sums of counts up to it do not overflow.
const COUNT_MAX: u64 = 1 << 62;

/// Slots of a chunk: at least this many (the last chunk may have fewer), at most twice as many.
///
/// Copying a node for one changed child copies one chunk and the pointers to the others.
const CHUNK_SLOTS: usize = 16;

const _: () =
    assert!(FIXED_BYTES == 2 + 1 + 1 + 2 + 2, "the header: count, level, flags, prefix, two zeroes");
const _: () = assert!(CHILD_FIXED_BYTES <= CHILD_BYTES_MAX, "a child takes no more than is counted");
const _: () =
    assert!(REDUCTION_BYTES_MAX < UNKNOWN_REDUCTION as usize, "no length of a reduction means 'not known'");
const _: () = assert!(
    page_bytes_max(INNER_BYTES_MAX) / CHILD_FIXED_BYTES <= u16::MAX as usize,
    "the number of children has 16 bits"
);

/// An inner node in memory.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Height: 1 directly above the leaves.
    pub level: u8,
    separators: Arc<Separators>,
    chunks: Box<[Chunk]>,
    child_count: usize,
    /// The longest known reduction of a child. Shared by all versions of a node, and updated when one is
    /// written.
    reduction_bytes: Arc<AtomicUsize>,
    /// Bytes of the patches of all children. They do not count where nodes are split.
    patch_bytes: usize,
    /// Reductions of whole chunks, computed on first use.
    reductions: OnceLock<Box<[OnceLock<Reduction>]>>,
}

/// Neighbouring children, shared by all versions of the node in which none of them changed.
#[derive(Debug, Clone)]
struct Chunk {
    /// Index of its first child.
    first: usize,
    slots: Arc<[Slot]>,
}

/// A subtree to be put into a parent, and the separator before it.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The separator. Ignored for the first of the pieces that replace a child: the separator before the
    /// child stays.
    pub separator: Vec<u8>,
    /// The subtree.
    pub slot: Slot,
    /// Whether it should be merged with a neighbour.
    pub small: bool,
}

/// Replaced children, by index.
pub(super) type Changed = Vec<(usize, Vec<Piece>)>;

impl Inner {
    /// Builds a node from separators and slots, one slot more than separators.
    ///
    /// A child's reduction takes about `reduction_bytes`.
    pub(crate) fn build(
        level: u8,
        separators: Separators,
        slots: Vec<Slot>,
        reduction_bytes: usize,
    ) -> Inner {
        let (between, child_count) = (separators.len(), slots.len());
        let patch_bytes = if level == 1 { slots.iter().map(Slot::patch_bytes).sum() } else { 0 };
        invariant!(between + 1 == child_count, "{between} separators are between {child_count} children");
        let mut chunks = Vec::with_capacity(child_count.div_ceil(CHUNK_SLOTS));
        let mut slots = slots.into_iter();
        while slots.len() > 0 {
            let first = child_count - slots.len();
            chunks.push(Chunk { first, slots: slots.by_ref().take(CHUNK_SLOTS).collect() });
        }
        let separators = Arc::new(separators);
        let chunks = chunks.into();
        let reduction_bytes = Arc::new(AtomicUsize::new(reduction_bytes));
        let reductions = OnceLock::new();
        let inner =
            Inner { level, separators, chunks, child_count, reduction_bytes, patch_bytes, reductions };
        debug_assert!(inner.is_sound(), "a node built of {child_count} children is sound");
        inner
    }

    /// Whether its chunks are long enough and without a gap, its separators sorted, and its children lower.
    ///
    /// Children on disk may be lower than they should be: their pages say no more than that they are inner
    /// nodes.
    fn is_sound(&self) -> bool {
        let starts = self.chunks.iter().map(|chunk| chunk.first);
        let ends = std::iter::once(0).chain(self.chunks.iter().map(Chunk::end));
        let lengths = self.chunks.iter().map(|chunk| chunk.slots.len());
        starts.eq(ends.take(self.chunks.len()))
            && lengths.clone().all(|length| (1..=2 * CHUNK_SLOTS).contains(&length))
            && lengths.rev().skip(1).all(|length| length >= CHUNK_SLOTS)
            && self.chunks.last().map(Chunk::end) == Some(self.child_count)
            && self.separators.are_ordered()
            && self.slots().filter_map(Slot::peek).all(|child| child.level() < self.level)
    }

    /// The longest known reduction of a child; 0 if none is known.
    pub(crate) fn reduction_bytes(&self) -> usize {
        self.reduction_bytes.load(Ordering::Relaxed)
    }

    /// Notes that a child's reduction takes, or will take, so many bytes.
    pub(crate) fn note_reduction_bytes(&self, bytes: usize) {
        self.reduction_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// The node with some children, sorted by index, each replaced by one or more. Unchanged chunks are
    /// shared.
    ///
    /// `None` if the node would be larger than `bytes_max`, or if a new separator lacks the common prefix.
    pub(crate) fn with_pieces(&self, changed: &Changed, bytes_max: usize) -> Option<Inner> {
        let more: usize = changed.iter().map(|(_, pieces)| pieces.len() - 1).sum();
        let separators =
            if more == 0 { Arc::clone(&self.separators) } else { self.separators_with(changed)? };
        let bytes = self.cut_bytes(self.child_count + more, &separators);
        // Reductions grow with what is below. That alone splits a node only when much is gained: a split
        // copies the whole node.
        let is_far_over = bytes > 2 * bytes_max && self.child_count >= 4 * INNER_CHILDREN_MIN
            || bytes > page_bytes_max(bytes_max);
        if (more > 0 && bytes > bytes_max) || is_far_over {
            return None;
        }
        let mut chunks = Vec::with_capacity(self.chunks.len() + more);
        let mut rest = &changed[..];
        let mut child_count = 0;
        for chunk in &self.chunks {
            let (here, later) = rest.split_at(rest.partition_point(|(index, _)| *index < chunk.end()));
            rest = later;
            child_count = push(&mut chunks, child_count, chunk.with_pieces(here));
        }
        invariant!(rest.is_empty(), "each of {} replaced children is one of {child_count}", changed.len());
        let wanted = self.child_count + more;
        invariant!(child_count == wanted, "{child_count} children of a changed node are {wanted}");
        let inner = Inner {
            level: self.level,
            separators,
            chunks: chunks.into(),
            child_count,
            reduction_bytes: Arc::clone(&self.reduction_bytes),
            patch_bytes: self.patch_bytes_with(changed),
            reductions: OnceLock::new(),
        };
        debug_assert!(inner.is_sound(), "a node with {} replaced children is sound", changed.len());
        Some(inner)
    }

    /// Bytes of the patches of all children, after some are replaced.
    fn patch_bytes_with(&self, changed: &Changed) -> usize {
        if self.level > 1 {
            return 0;
        }
        let gone: usize = changed.iter().map(|(index, _)| self.slot(*index).patch_bytes()).sum();
        let new = changed.iter().flat_map(|(_, pieces)| pieces).map(|piece| piece.slot.patch_bytes());
        invariant!(gone <= self.patch_bytes, "{gone} bytes of patches are among {}", self.patch_bytes);
        self.patch_bytes - gone + new.sum::<usize>()
    }

    /// Bytes that the patches of the children take in its page.
    pub(crate) fn patch_bytes(&self) -> usize {
        match self.patch_bytes {
            0 => 0,
            bytes => bytes + PATCH_LENGTH_BYTES * self.child_count,
        }
    }

    fn separators_with(&self, changed: &Changed) -> Option<Arc<Separators>> {
        let added: Vec<(usize, &[u8])> = changed
            .iter()
            .flat_map(|(index, pieces)| pieces[1..].iter().map(|piece| (*index, piece.separator.as_slice())))
            .collect();
        self.separators.with(&added).map(Arc::new)
    }

    /// Number of children.
    pub(crate) fn len(&self) -> usize {
        self.child_count
    }

    /// Child `index`.
    pub(crate) fn slot(&self, index: usize) -> &Slot {
        let chunk = &self.chunks[self.chunk_of(index)];
        &chunk.slots[index - chunk.first]
    }

    /// The chunk of child `index`: the one it would be in if all chunks were small, or an earlier one.
    fn chunk_of(&self, index: usize) -> usize {
        let mut chunk = (index / CHUNK_SLOTS).min(self.chunks.len() - 1);
        while self.chunks[chunk].first > index {
            chunk -= 1;
        }
        chunk
    }

    /// The children of the chunk that begins at child `index`, and the cell for their reduction.
    ///
    /// `None` if no chunk begins there, or if the chunk does not end before child `end`.
    #[inline]
    pub(crate) fn chunk_from(&self, index: usize, end: usize) -> Option<(&[Slot], &OnceLock<Reduction>)> {
        let number = self.chunk_of(index);
        let chunk = Some(&self.chunks[number]).filter(|chunk| chunk.first == index && chunk.end() <= end)?;
        let cells = || self.chunks.iter().map(|_| OnceLock::new()).collect();
        Some((&chunk.slots, &self.reductions.get_or_init(cells)[number]))
    }

    /// All children in order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.chunks.iter().flat_map(|chunk| chunk.slots.iter())
    }

    /// The children that no other version of this node shares. Approximate: another version may be dropped
    /// concurrently.
    pub(crate) fn slots_of_its_own(&self) -> impl Iterator<Item = &Slot> {
        let own = self.chunks.iter().filter(|chunk| Arc::strong_count(&chunk.slots) == 1);
        own.flat_map(|chunk| chunk.slots.iter())
    }

    /// The separators between the children.
    pub(crate) fn separators(&self) -> &Separators {
        &self.separators
    }

    /// Approximate bytes in memory. Bytes shared with other versions are counted; what slots hold is charged
    /// by itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let chunk = size_of::<Chunk>() + size_of::<OnceLock<Reduction>>();
        let chunks = self.chunks.len() * chunk + self.child_count * size_of::<Slot>();
        self.separators.heap_bytes() + chunks
    }

    /// Approximate bytes of its page without patches. Reductions may not be known yet.
    pub(crate) fn page_bytes_about(&self) -> usize {
        let reduction = self.reduction_bytes().max(USUAL_REDUCTION_BYTES);
        let separators = self.separators.prefix().len() + self.separators.suffix_bytes();
        PAGE_HEADER_BYTES + FIXED_BYTES + separators + self.child_count * (child_cost(None) + reduction)
    }

    /// Bytes of a node as counted when nodes are split: so many children between these separators.
    ///
    /// Each separator counts the common prefix.
    fn cut_bytes(&self, child_count: usize, separators: &Separators) -> usize {
        let each = child_cost(None) + self.reduction_bytes();
        child_count * each + separators.len() * separators.prefix().len() + separators.suffix_bytes()
    }

    /// The page image; every child must have a page pointer.
    pub(crate) fn to_page(&self, generation: u64, pointers: &[NodePointer]) -> Page {
        let (with_pointer, child_count) = (pointers.len(), self.child_count);
        invariant!(
            with_pointer == child_count,
            "{with_pointer} of {child_count} children have a pointer before their parent"
        );
        invariant!(self.level > 0, "a node of {child_count} children is above the leaves");
        pointers.iter().for_each(|pointer| self.check_pointer(pointer));
        let longest = pointers.iter().filter_map(|pointer| Some(pointer.reduction.bytes()?.len())).max();
        self.note_reduction_bytes(longest.unwrap_or_default());
        let prefix = self.separators.prefix();
        let patch_bytes: usize = pointers.iter().map(NodePointer::patch_bytes).sum();
        invariant!(patch_bytes == self.patch_bytes, "{patch_bytes} of {} bytes of patches", self.patch_bytes);
        let payload = FIXED_BYTES
            + prefix.len()
            + self.separators.suffix_bytes()
            + pointers.iter().map(|p| child_cost(p.reduction.bytes())).sum::<usize>()
            + self.patch_bytes();
        let short = |n: usize| {
            u16::try_from(n).expect("no part of an inner node is longer (limits.rs)").to_le_bytes()
        };
        Page::build(PageKind::Inner, generation, payload, |out| {
            out.extend_from_slice(&short(self.child_count));
            out.extend_from_slice(&[self.level, if patch_bytes > 0 { HAS_PATCHES } else { 0 }]);
            out.extend_from_slice(&short(prefix.len()));
            out.extend_from_slice(&[0; 2]);
            out.extend_from_slice(prefix);
            for (index, (slot, pointer)) in self.slots().zip(pointers).enumerate() {
                let suffix = if index == 0 { &[][..] } else { self.separators.suffix(index - 1) };
                out.extend_from_slice(&short(suffix.len()));
                out.extend_from_slice(suffix);
                pointer.page.encode(out);
                out.extend_from_slice(&slot.count.to_le_bytes());
                match pointer.reduction.bytes() {
                    Some(reduction) => {
                        out.extend_from_slice(&short(reduction.len()));
                        out.extend_from_slice(reduction);
                    }
                    None => out.extend_from_slice(&UNKNOWN_REDUCTION.to_le_bytes()),
                }
                if patch_bytes > 0 {
                    let patch = pointer.patch.as_ref().map_or(&[][..], |patch| patch.bytes());
                    out.extend_from_slice(&short(patch.len()));
                    out.extend_from_slice(patch);
                }
            }
        })
    }

    /// Checks what [`Inner::from_page`] will demand of a child.
    fn check_pointer(&self, pointer: &NodePointer) {
        let (level, is_inner) = (self.level, pointer.page.is_inner());
        invariant!(is_inner == (level > 1), "a child of a node of height {level} is inner: {is_inner}");
        let length = pointer.reduction.bytes().map_or(0, <[u8]>::len);
        invariant!(length <= REDUCTION_BYTES_MAX, "a reduction has {length} of {REDUCTION_BYTES_MAX} bytes");
    }

    /// Reads a page image; returns what is wrong with its structure otherwise.
    pub(crate) fn from_page(meter: &Arc<Meter>, page: &Page) -> Result<Inner, &'static str> {
        let mut rest = Bytes(page.payload());
        let count = rest.short()? as usize;
        let level = rest.take(1)?[0];
        let has_patches = match rest.take(1)? {
            [0] => false,
            [HAS_PATCHES] if level == 1 => true,
            _ => return Err("inner node of a kind that this build does not know"),
        };
        let prefix_bytes = rest.short()? as usize;
        rest.take(2)?;
        let prefix = rest.take(prefix_bytes)?;
        if count == 0 || level == 0 {
            return Err("inner node without children");
        }
        if level > LEVEL_MAX || prefix_bytes > KEY_BYTES_MAX {
            return Err("inner node that is higher, or has a longer prefix, than any");
        }
        let mut separators = Vec::new();
        let mut ends = Vec::new();
        let mut slots: Vec<Slot> = Vec::with_capacity(count.min(4096));
        for index in 0..count {
            let suffix_bytes = rest.short()? as usize;
            let suffix = rest.take(suffix_bytes)?;
            if index > 0 {
                if prefix_bytes + suffix_bytes > KEY_BYTES_MAX {
                    return Err("inner node with a separator that is longer than a key may be");
                }
                separators.extend_from_slice(suffix);
                ends.push(u32::try_from(separators.len()).map_err(|_| "inner node too long")?);
            }
            slots.push(read_child(meter, &mut rest, level, has_patches)?);
        }
        let count = slots.iter().try_fold(0u64, |sum, slot| sum.checked_add(slot.count));
        if count.is_none_or(|count| count > COUNT_MAX) {
            return Err("inner node with more entries below it than can be counted");
        }
        let reduction_bytes = slots.iter().filter_map(Slot::reduction_bytes).max().unwrap_or_default();
        let separators = Separators::of(prefix, separators, ends);
        if !separators.are_ordered() {
            return Err("inner node with separators out of order");
        }
        Ok(Inner::build(level, separators, slots, reduction_bytes))
    }
}

impl Chunk {
    /// One after its last child.
    fn end(&self) -> usize {
        self.first + self.slots.len()
    }

    /// Its slots after some of them are replaced.
    fn with_pieces(&self, changed: &[(usize, Vec<Piece>)]) -> Arc<[Slot]> {
        let mut slots = Arc::clone(&self.slots);
        if changed.iter().all(|(_, pieces)| pieces.len() == 1) {
            for (index, pieces) in changed {
                // After the first of these, the slots belong to this node alone.
                Arc::make_mut(&mut slots)[index - self.first] = pieces[0].slot.clone();
            }
            return slots;
        }
        let mut next = 0;
        let mut all =
            Vec::with_capacity(slots.len() + changed.iter().map(|(_, pieces)| pieces.len()).sum::<usize>());
        for (index, pieces) in changed {
            all.extend_from_slice(&slots[next..index - self.first]);
            all.extend(pieces.iter().map(|piece| piece.slot.clone()));
            next = index - self.first + 1;
        }
        all.extend_from_slice(&slots[next..]);
        all.into()
    }
}

/// Adds the slots of a chunk, as several chunks if they are too many for one; returns the number of children
/// so far.
fn push(chunks: &mut Vec<Chunk>, first: usize, slots: Arc<[Slot]>) -> usize {
    let count = slots.len();
    if count <= 2 * CHUNK_SLOTS {
        chunks.push(Chunk { first, slots });
    } else {
        let parts = count / CHUNK_SLOTS;
        chunks.extend((0..parts).map(|part| {
            let (from, to) = (part * count / parts, (part + 1) * count / parts);
            Chunk { first: first + from, slots: slots[from..to].into() }
        }));
    }
    first + count
}

/// The longest page of an inner node, where nodes are split at `bytes_max`.
///
/// It is four times `bytes_max`, for reductions that grew since the split, plus the largest children that
/// cannot be split.
pub(crate) const fn page_bytes_max(bytes_max: usize) -> usize {
    4 * bytes_max + 2 * INNER_CHILDREN_MIN * (KEY_BYTES_MAX + REDUCTION_BYTES_MAX + CHILD_BYTES_MAX)
}

/// Bytes of a child in a page, without its separator.
pub(super) fn child_cost(reduction: Option<&[u8]>) -> usize {
    CHILD_FIXED_BYTES + reduction.map_or(0, <[u8]>::len)
}

fn read_child(
    meter: &Arc<Meter>,
    rest: &mut Bytes<'_>,
    level: u8,
    has_patches: bool,
) -> Result<Slot, &'static str> {
    let pointer = PagePointer::decode(rest.take(POINTER_BYTES)?).ok_or("inner node cut short")?;
    if pointer.is_inner() != (level > 1) {
        return Err("inner node with a child of another height");
    }
    let count = u64::from_le_bytes(rest.take(8)?.try_into().map_err(|_| "inner node cut short")?);
    let reduction_bytes = rest.short()?;
    let reduction = match reduction_bytes {
        UNKNOWN_REDUCTION => Reduction::UNKNOWN,
        bytes if bytes as usize > REDUCTION_BYTES_MAX => return Err("inner node with a reduction too long"),
        bytes => Reduction::of(rest.take(bytes as usize)?),
    };
    let patch = match if has_patches { rest.short()? } else { 0 } {
        0 => None,
        bytes => {
            let charge = |bytes| PatchCharge::new(meter, bytes);
            Some(Arc::new(StoredPatch::parse(rest.take(bytes as usize)?, charge)?))
        }
    };
    Ok(Slot::below(meter, count, NodePointer { page: pointer, reduction, patch }, level))
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("inner node cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn short(&mut self) -> Result<u16, &'static str> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }
}
