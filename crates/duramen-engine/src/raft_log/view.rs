//! What readers of Raft's log see: its end, the newest entries, and where older ones lie.
//!
//! A change is seen as soon as it is asked for. The thread that writes follows later, in the same order.
//! Nothing here does I/O; each method runs under the view's lock for a moment.

use std::collections::VecDeque;

use super::entry::{Entry, LogEnd, Stored, encode};
use crate::alarm::invariant;
use crate::error::{Code, Error, Result};
use crate::ids::CommitSeq;
use crate::limits::{RAFT_CACHE_BYTES, RAFT_ENTRY_BYTES_MAX};
use crate::wal::{LogPosition, Record};

/// A place is noted for about this part of the least segment: to read one entry, so much is read at most.
pub(super) const PLACE_PART: u64 = 4;

/// Memory of an entry beyond its content.
const STORED_BYTES: usize = size_of::<Stored>() + 32;

#[derive(Debug)]
pub(super) struct View {
    /// The last entry that is purged.
    pub(super) purged: LogEnd,
    /// The last entry.
    pub(super) end: LogEnd,
    /// Everything up to this one is on disk, and survives a power cut.
    pub(super) synced: CommitSeq,
    /// Everything up to this one is decided.
    pub(super) decided: CommitSeq,
    /// The newest entries: all that are not on disk, and others as far as there is room.
    cache: VecDeque<Stored>,
    cache_bytes: usize,
    /// Where the log can be read from, in order: right after a frame. The first is where it begins.
    places: Vec<LogPosition>,
    /// What is kept by cuts that were asked for and are not carried out: what is on disk after it is not the
    /// log any more.
    cuts: VecDeque<CommitSeq>,
    place_bytes: u64,
}

impl View {
    /// A log that was opened: all of it is on disk.
    pub(super) fn new(
        purged: LogEnd,
        end: LogEnd,
        decided: CommitSeq,
        begins: LogPosition,
        place_bytes: u64,
    ) -> View {
        View {
            purged,
            end,
            synced: end.id.seq,
            decided,
            cache: VecDeque::new(),
            cache_bytes: 0,
            places: vec![begins],
            cuts: VecDeque::new(),
            place_bytes,
        }
    }

    /// Adds entries. Returns their records.
    pub(super) fn append(&mut self, entries: Vec<Entry>) -> Result<Vec<Record>> {
        let mut end = self.end;
        let mut stored = Vec::with_capacity(entries.len());
        let mut records = Vec::with_capacity(entries.len());
        for entry in entries {
            check_follows(&end, &entry)?;
            let (bytes, chain) = encode(&entry, end.chain);
            end = LogEnd { id: entry.id, chain, time_ns: entry.time_ns };
            let mut record = Record::new(bytes);
            record.seq = entry.id.seq;
            records.push(record);
            stored.push(Stored { entry, chain });
        }
        self.end = end;
        self.cache_bytes += stored.iter().map(memory_of).sum::<usize>();
        self.cache.extend(stored);
        Ok(records)
    }

    /// Takes back what follows an entry, whose end this is.
    pub(super) fn cut(&mut self, kept: LogEnd) {
        let seq = kept.id.seq;
        invariant!(self.decided <= seq, "{} is decided, and only {seq} is kept", self.decided);
        while self.cache.back().is_some_and(|last| last.entry.id.seq > seq) {
            self.cache_bytes -= self.cache.pop_back().as_ref().map_or(0, memory_of);
        }
        self.end = kept;
        self.synced = self.synced.min(seq);
        self.places.truncate(self.places.partition_point(|place| place.seq <= seq).max(1));
        self.cuts.push_back(seq);
    }

    /// A cut was carried out. What was read from these places may lie elsewhere: only those up to `from`
    /// hold.
    pub(super) fn cut_done(&mut self, from: LogPosition) {
        self.cuts.pop_front();
        self.places.truncate(self.places.partition_point(|place| place.seq <= from.seq).max(1));
    }

    /// Notes that the log is on disk up to here, and survives a power cut.
    pub(super) fn synced_to(&mut self, place: LogPosition, bytes_since_place: u64) -> bool {
        let kept = self.cuts.iter().min().map_or(place.seq, |kept| place.seq.min(*kept));
        self.synced = self.synced.max(kept);
        let is_place = bytes_since_place >= self.place_bytes && kept == place.seq;
        if is_place {
            self.learn(place);
        }
        self.forget_cached();
        is_place
    }

    /// Bytes of log after which a place is noted.
    pub(super) fn place_bytes(&self) -> u64 {
        self.place_bytes
    }

    /// Notes a place to read from. The caller reads segments, which are not cut meanwhile.
    pub(super) fn learn(&mut self, place: LogPosition) {
        let after = self.places.partition_point(|known| known.seq < place.seq);
        if self.places.get(after).is_none_or(|known| known.seq != place.seq) {
            self.places.insert(after, place);
        }
    }

    /// The last place before an entry.
    pub(super) fn place_before(&self, first: CommitSeq) -> LogPosition {
        let after = self.places.partition_point(|place| place.seq < first);
        self.places[after.saturating_sub(1)]
    }

    /// The places that are known, the newest first.
    pub(super) fn places(&self) -> impl Iterator<Item = &LogPosition> {
        self.places.iter().rev()
    }

    /// The log begins here from now on.
    pub(super) fn begin_at(&mut self, purged: LogEnd, place: LogPosition) {
        self.purged = purged;
        self.places.retain(|known| known.seq >= place.seq);
        self.learn(place);
    }

    /// Entries that are in memory, from this one on: at least one, if that one is.
    pub(super) fn cached(&self, first: CommitSeq, last: CommitSeq, bytes_max: usize) -> Vec<Stored> {
        let Some(oldest) = self.cache.front().map(|stored| stored.entry.id.seq) else { return Vec::new() };
        let Some(skip) = first.0.checked_sub(oldest.0) else { return Vec::new() };
        let mut bytes = 0;
        self.cache
            .iter()
            .skip(usize::try_from(skip).unwrap_or(usize::MAX))
            .take_while(|stored| {
                let is_first = bytes == 0;
                bytes += memory_of(stored);
                stored.entry.id.seq <= last && (is_first || bytes <= bytes_max)
            })
            .cloned()
            .collect()
    }

    /// Entries before this one are not in memory.
    pub(super) fn cached_from(&self) -> CommitSeq {
        self.cache.front().map_or(self.end.id.seq.next(), |stored| stored.entry.id.seq)
    }

    fn forget_cached(&mut self) {
        let is_old = |stored: &Stored| stored.entry.id.seq <= self.synced;
        while self.cache_bytes > RAFT_CACHE_BYTES && self.cache.front().is_some_and(is_old) {
            self.cache_bytes -= self.cache.pop_front().as_ref().map_or(0, memory_of);
        }
    }
}

fn memory_of(stored: &Stored) -> usize {
    stored.entry.bytes.len() + STORED_BYTES
}

fn check_follows(end: &LogEnd, entry: &Entry) -> Result<()> {
    let (id, last) = (entry.id, end.id);
    if id.seq != last.seq.next() || id.term < last.term || entry.time_ns < end.time_ns {
        return Err(Error::invalid(format!(
            "entry {} of term {} at {} ns cannot follow entry {} of term {} at {} ns",
            id.seq, id.term, entry.time_ns, last.seq, last.term, end.time_ns
        )));
    }
    if entry.bytes.len() > RAFT_ENTRY_BYTES_MAX {
        let message =
            format!("an entry of {} bytes, at most {RAFT_ENTRY_BYTES_MAX} are replicated", entry.bytes.len());
        return Err(Error::new(Code::TooLarge, message).with_hint("commit in smaller transactions"));
    }
    Ok(())
}
