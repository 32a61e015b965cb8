//! The space map on disk: pages of bits, and a list of those pages.
//!
//! A checkpoint writes the pages that changed to fresh extents. The map holds what its own root reaches:
//! deferred extents and values of later commits are free after a crash.

use std::collections::BTreeMap;

use super::bitmap::{Bitmap, Bits, PAGE_BLOCKS, PAGE_WORDS, page_of, word_of};
use super::{DeferredExtent, Space, State};
use crate::alarm::invariant;
use crate::data_file::{
    DataFile, INDEX_SLACK_BYTES, PAGE_HEADER_BYTES, POINTER_BYTES, Page, PageKind, PagePointer,
    first_free_block,
};
use crate::error::{Error, Result};
use crate::ids::{CommitSeq, Generation};
use crate::limits::BLOCK_BYTES;
use crate::options::GiveBack;

const _: () = assert!(PAGE_HEADER_BYTES + PAGE_WORDS * 8 <= BLOCK_BYTES, "a page of the map takes one block");

/// Extents as (first block, blocks).
type Extents = Vec<(u64, u32)>;

/// The space map of the newest durable checkpoint.
#[derive(Debug, Default, Clone)]
pub(crate) struct PersistedMap {
    pages: Vec<(Bits, PagePointer)>,
    index: Option<PagePointer>,
}

impl PersistedMap {
    /// The extents of the map itself.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u64, u32)> {
        self.pages.iter().map(|(_, pointer)| pointer.extent()).chain(self.index.map(|l| l.extent()))
    }
}

/// A space map being written by a checkpoint.
#[derive(Debug)]
pub(crate) struct MapDraft {
    map: PersistedMap,
    fresh: Vec<(u64, u32)>,
    stale: Vec<(u64, u32)>,
    boundary: CommitSeq,
    /// The list of pages, for the superblock.
    pub index: PagePointer,
    /// One after the last block in use.
    pub end_block: u64,
}

impl MapDraft {
    /// Whether the map calls every block of an extent used.
    fn has(&self, extent: (u64, u32)) -> bool {
        let (block, block_count) = extent;
        (block..block.saturating_add(u64::from(block_count))).all(|block| {
            let page = self.map.pages.get(page_of(block));
            page.is_some_and(|(bits, _)| bits[word_of(block)] >> (block % 64) & 1 == 1)
        })
    }
}

impl Space {
    /// Checks that a map to be written calls used what the superblock will lead to first: the superblocks'
    /// own blocks, this map's new pages, and the tree of roots. If it did not, they would be overwritten
    /// after the next opening.
    ///
    /// # Errors
    /// `Corrupt`, and a contradiction: a page that is in use was freed, or a file names one block twice.
    pub(crate) fn check_covers(&self, draft: &MapDraft, roots: Option<(u64, u32)>) -> Result<()> {
        let mut state = self.lock();
        let superblocks = (0, u32::try_from(state.first_block).expect("the superblock area is small"));
        let named = [superblocks].into_iter().chain(draft.fresh.iter().copied()).chain(roots);
        for (block, block_count) in named {
            if !draft.has((block, block_count)) {
                return Err(state.not_covered(block, block_count));
            }
        }
        Ok(())
    }

    /// Reads the map that a superblock names.
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page of it cannot be read.
    pub(crate) fn load(data: DataFile, index: &PagePointer, give_back: GiveBack) -> Result<Space> {
        let pages = read_pages(&data, index)?;
        let used = Bitmap::from_pages(pages.iter().map(|(bits, _)| bits.clone()));
        let first =
            u32::try_from(first_free_block(data.block_bytes())).expect("the superblock area is small");
        if !used.all_set(0, first) {
            let what = "a space map that calls the superblocks' blocks free";
            return Err(Error::corrupt_data(data.path(), data.offset(index.block), what));
        }
        let file_bytes = data.file().len().map_err(|e| Error::io("measure", data.path(), &e))?;
        let file_blocks = file_bytes / data.block_bytes() as u64;
        Ok(Space::with(data, give_back, used, PersistedMap { pages, index: Some(*index) }, file_blocks))
    }

    /// Defers the free of what an older map uses and this one does not until the next checkpoint. The older
    /// superblock is what remains if the newer one is corrupt (D3).
    ///
    /// # Errors
    /// `Corrupt` or `Io` if a page of the older map cannot be read.
    pub(crate) fn hold(&self, older: &PagePointer, seq: CommitSeq) -> Result<()> {
        let older = Bitmap::from_pages(read_pages(&self.data, older)?.into_iter().map(|(bits, _)| bits));
        let mut state = self.lock();
        for (block, block_count) in older.runs_not_in(&state.used.without(&state.holes)) {
            state.own(block, block_count);
            state.waiting.push(DeferredExtent { block, block_count, birth: seq, unused_since: seq });
        }
        debug_assert!(state.is_consistent(), "the maps agree with the older one held");
        debug_assert!(
            older.runs_not_in(&state.used.without(&state.holes)).is_empty(),
            "nothing that the older map uses is handed out"
        );
        Ok(())
    }

    /// Writes the changed pages of the map through `put`, as the root of commit `boundary` needs it. The
    /// extents in `gone` belong to the newest checkpoint and not to the one being written.
    ///
    /// # Errors
    /// What allocation or `put` returned; nothing stays allocated then.
    pub(crate) fn draft(
        &self,
        boundary: CommitSeq,
        generation: Generation,
        gone: Vec<(u64, u32)>,
        put: &mut dyn FnMut(&Page, u64) -> Result<PagePointer>,
    ) -> Result<MapDraft> {
        let mut draft = self.plan(boundary, gone)?;
        let written = self.write_draft(&mut draft, generation, put);
        if let Err(error) = written {
            self.discard(&draft);
            return Err(error);
        }
        Ok(draft)
    }

    /// To be called once the superblock that names the draft is durable.
    pub(crate) fn adopt(&self, draft: MapDraft) {
        let mut state = self.lock();
        state.unrooted.retain(|_, (_, seq)| seq.is_none_or(|seq| seq > draft.boundary));
        for (block, block_count) in std::mem::replace(&mut state.stale, draft.stale) {
            state.free(block, block_count);
        }
        state.persisted = draft.map;
    }

    /// Undoes a draft after its checkpoint failed, before its superblock was written.
    pub(crate) fn discard(&self, draft: &MapDraft) {
        draft.fresh.iter().for_each(|(block, block_count)| self.give_back(*block, *block_count));
    }

    /// Allocates room for the pages that change.
    fn plan(&self, boundary: CommitSeq, gone: Vec<(u64, u32)>) -> Result<MapDraft> {
        let mut fresh = Vec::new();
        let planned = self.plan_into(boundary, gone, &mut fresh);
        if planned.is_err() {
            fresh.iter().for_each(|(block, block_count)| self.give_back(*block, *block_count));
        }
        let (map, stale, end_block) = planned?;
        let index = map.index.expect("a plan has an index");
        let covered = map.pages.len() as u64 * PAGE_BLOCKS;
        invariant!(covered >= end_block, "a map of {covered} blocks covers those up to {end_block}");
        Ok(MapDraft { map, fresh, stale, boundary, index, end_block })
    }

    /// Allocating a page changes the map, and so may change further pages: repeats until no page changes.
    fn plan_into(
        &self,
        boundary: CommitSeq,
        mut stale: Vec<(u64, u32)>,
        fresh: &mut Vec<(u64, u32)>,
    ) -> Result<(PersistedMap, Extents, u64)> {
        let mut state = self.lock();
        let freed = state.released_to;
        invariant!(boundary >= freed, "the checkpoint of commit {boundary} needs nothing that {freed} freed");
        let page_blocks = self.data.blocks_of(PAGE_HEADER_BYTES + PAGE_WORDS * 8);
        let mut target = reachable(&state, boundary);
        stale.extend(state.persisted.index.map(|index| index.extent()));
        stale.iter().for_each(|(block, count)| target.clear(*block, *count));
        let index_blocks = self.index_blocks(&target);
        let index = self.take_page(&mut state, &mut target, index_blocks, fresh)?;
        let mut places: BTreeMap<usize, PagePointer> = BTreeMap::new();
        loop {
            let is_due = |page: usize| differs(&state, &target, page) || state.moves_map_page(page);
            let changed = |page: &usize| !places.contains_key(page) && is_due(*page);
            let Some(page) = (0..target.page_count()).find(changed) else { break };
            if let Some((_, old)) = state.persisted.pages.get(page) {
                let (block, count) = old.extent();
                stale.push((block, count));
                target.clear(block, count);
            }
            let place = self.take_page(&mut state, &mut target, page_blocks, fresh)?;
            places.insert(page, place);
        }
        let page_at = |page: usize| {
            let place = places.get(&page).copied();
            let kept = || state.persisted.pages[page].1;
            (target.bits(page).clone(), place.unwrap_or_else(kept))
        };
        let pages: Vec<_> = (0..target.page_count()).map(page_at).collect();
        let (named, in_use) = (target.used(), state.in_use_blocks());
        invariant!(named <= in_use, "the {named} blocks of the map are among the {in_use} in use");
        debug_assert!(state.is_consistent() && target.adds_up(), "the maps agree when one is written");
        Ok((PersistedMap { pages, index: Some(index) }, stale, target.end()))
    }

    /// Blocks for a list of all pages, with room for the few that planning may add.
    fn index_blocks(&self, target: &Bitmap) -> u32 {
        self.data.blocks_of(PAGE_HEADER_BYTES + target.page_count() * POINTER_BYTES + INDEX_SLACK_BYTES)
    }

    fn take_page(
        &self,
        state: &mut State,
        target: &mut Bitmap,
        block_count: u32,
        fresh: &mut Vec<(u64, u32)>,
    ) -> Result<PagePointer> {
        let block = self.take(state, block_count)?;
        target.set(block, block_count);
        fresh.push((block, block_count));
        Ok(PagePointer { block, block_count, raw_bytes: 0, flags: 0, tag: [0; 16] })
    }

    fn write_draft(
        &self,
        draft: &mut MapDraft,
        generation: Generation,
        put: &mut dyn FnMut(&Page, u64) -> Result<PagePointer>,
    ) -> Result<()> {
        for (bits, pointer) in &mut draft.map.pages {
            if pointer.raw_bytes == 0 {
                let page = Page::build(PageKind::SpaceMap, generation.0, PAGE_WORDS * 8, |out| {
                    bits.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
                });
                *pointer = put(&page, pointer.block)?;
            }
        }
        let bytes = draft.map.pages.len() * POINTER_BYTES;
        let list = Page::build(PageKind::SpaceIndex, generation.0, bytes, |out| {
            draft.map.pages.iter().for_each(|(_, pointer)| pointer.encode(out));
        });
        let (needed, there) = (self.data.blocks_of(list.bytes().len()), draft.index.block_count);
        if needed > there {
            return Err(self.lock().too_short(draft.index.block, there));
        }
        // The index keeps all its blocks, even if its list does not fill them.
        let pointer = PagePointer { block_count: draft.index.block_count, ..put(&list, draft.index.block)? };
        draft.index = pointer;
        draft.map.index = Some(pointer);
        Ok(())
    }
}

/// The pages of a map.
fn read_pages(data: &DataFile, index: &PagePointer) -> Result<Vec<(Bits, PagePointer)>> {
    let list = data.read(index, PageKind::SpaceIndex)?;
    let entries = list.payload().len() / POINTER_BYTES;
    let file_bytes = data.file().len().map_err(|e| Error::io("measure", data.path(), &e))?;
    // Each page of the map has blocks of its own. A list that repeats pages would take more memory than the
    // file has bytes.
    let bytes = (entries * (PAGE_HEADER_BYTES + PAGE_WORDS * 8)) as u64;
    if !list.payload().len().is_multiple_of(POINTER_BYTES) || bytes > file_bytes {
        let what = format!("a list of {entries} pages of the space map in a file of {file_bytes} bytes");
        return Err(Error::corrupt_data(data.path(), data.offset(index.block), what));
    }
    let mut pages = Vec::with_capacity(entries);
    for entry in list.payload().chunks_exact(POINTER_BYTES) {
        let pointer = PagePointer::decode(entry).expect("the chunk is as long as a pointer");
        let page = data.read(&pointer, PageKind::SpaceMap)?;
        let bits = decode_bits(page.payload()).ok_or_else(|| {
            let offset = data.offset(pointer.block);
            Error::corrupt_data(data.path(), offset, "a space map of the wrong length")
        })?;
        pages.push((bits, pointer));
    }
    Ok(pages)
}

/// What the root of `boundary` reaches: everything used except holes, deferred extents and later values.
pub(super) fn reachable(state: &State, boundary: CommitSeq) -> Bitmap {
    let mut target = state.used.without(&state.holes);
    for extent in state.waiting.iter().filter(|extent| extent.unused_since <= boundary) {
        target.clear(extent.block, extent.block_count);
    }
    for (block, block_count) in &state.stale {
        target.clear(*block, *block_count);
    }
    for (block, (count, seq)) in &state.unrooted {
        if seq.is_none_or(|seq| seq > boundary) {
            target.clear(*block, *count);
        }
    }
    target
}

impl State {
    /// Whether compaction moves this page of the stored map.
    fn moves_map_page(&self, page: usize) -> bool {
        let Some(((_, pointer), aimed)) = self.persisted.pages.get(page).zip(self.aimed_end) else {
            return false;
        };
        pointer.block + u64::from(pointer.block_count) > aimed
    }
}

fn differs(state: &State, target: &Bitmap, page: usize) -> bool {
    state.persisted.pages.get(page).is_none_or(|(bits, _)| bits != target.bits(page))
}

/// The words of a page of the map, for a reader of single pages.
pub(crate) fn map_words(payload: &[u8]) -> Option<Box<[u64]>> {
    decode_bits(payload).map(|bits| bits as Box<[u64]>)
}

fn decode_bits(payload: &[u8]) -> Option<Bits> {
    if payload.len() != PAGE_WORDS * 8 {
        return None;
    }
    let mut bits = Box::new([0; PAGE_WORDS]);
    for (word, bytes) in bits.iter_mut().zip(payload.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(bits)
}
