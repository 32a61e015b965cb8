//! Power cuts at every operation of random runs, also after recoveries: D1, D2 and D5 over the log alone.
//!
//! Records written after a recovery differ from lost ones of the same sequence, so that a lost record that
//! comes back is noticed.

use duramen_disk::memory::{CrashChoice, Trace};
use duramen_disk::{Access, OpenMode};

use super::*;
use crate::wal::segment::segment_path;
use crate::wal::spare::SegmentFactory;
use crate::wal::state::SpareOrder;

/// What was promised from one operation of the recording on.
#[derive(Clone, Copy)]
struct Promise {
    at_op: usize,
    acknowledged: u64,
    /// The positions in the newer and the older superblock.
    newer: LogPosition,
    older: LogPosition,
}

/// A running log, with what the checks need to know of it.
struct World {
    disk: MemDisk,
    log: Log,
    /// The bytes of commit `index + 1`.
    history: Vec<Vec<u8>>,
    promises: Vec<Promise>,
    salt: u64,
}

/// How often the interesting cases occurred: a search without them proves nothing.
#[derive(Debug, Default)]
struct Met {
    images: u64,
    /// Beyond this many, no deeper search begins.
    images_wanted: u64,
    torn: u64,
    unmarked: u64,
    lost_unacknowledged: u64,
    kept_unacknowledged: u64,
    cut_in_reopen: u64,
    depth_max: u32,
}

impl World {
    fn born(seed: u64, sync: SyncMethod) -> World {
        let disk = disk(seed);
        let (log, from) = create(&disk, sync);
        disk.record();
        let first = Promise { at_op: 0, acknowledged: 0, newer: from, older: from };
        World { disk, log, history: Vec::new(), promises: vec![first], salt: 0 }
    }

    fn promise(&mut self, change: impl FnOnce(&mut Promise)) {
        let mut promise = *self.promises.last().unwrap();
        promise.at_op = self.disk.recorded_len();
        change(&mut promise);
        self.promises.push(promise);
    }

    fn durable(&self) -> u64 {
        self.promises.last().unwrap().acknowledged
    }

    fn step(&mut self, draw: &mut Draw) {
        match draw.below(10) {
            0 => drop(self.log.write_mark(CommitSeq(self.durable())).unwrap()),
            1 | 2 => self.sync(),
            3 => self.log.prepare_spare(&mut |_| ()).unwrap(),
            4 => self.checkpoint(draw.below(3) > 0),
            kind => self.write(draw.below(4), kind > 6),
        }
    }

    fn write(&mut self, count: u64, sync: bool) {
        let from = self.history.len() as u64 + 1;
        let records = records(from, from + count, self.salt);
        self.history.extend(records.iter().map(|record| record.bytes().to_vec()));
        let group = group(&records, self.durable());
        if sync {
            self.log.write_and_sync(&group).unwrap();
            self.promise(|promise| promise.acknowledged = from + count);
        } else {
            self.log.write(&group).unwrap();
        }
    }

    fn sync(&mut self) {
        let covered = self.log.sync().unwrap().seq.0;
        self.promise(|promise| promise.acknowledged = covered);
    }

    fn checkpoint(&mut self, recycle: bool) {
        self.sync();
        let position = self.log.position();
        self.promise(|promise| {
            promise.older = promise.newer;
            promise.newer = position;
        });
        if recycle {
            self.log.recycle(&self.promises.last().unwrap().older);
        }
    }
}

fn choices(draw: &mut Draw, pending: usize) -> Vec<CrashChoice> {
    let mut choices = vec![CrashChoice::None, CrashChoice::All];
    if pending > 0 {
        let index = draw.below(pending as u64) as usize;
        let last = pending - 1;
        choices.extend([CrashChoice::Prefix(index), CrashChoice::Only(last), CrashChoice::AllBut(index)]);
        choices.push(CrashChoice::Torn { index: last, seed: draw.next() });
        choices.extend((0..3).map(|_| CrashChoice::Random { seed: draw.next() }));
    }
    choices
}

/// Cuts the power at every boundary of a run, checks what recovery finds, and sometimes goes on from there.
fn search(world: &World, draw: &mut Draw, met: &mut Met, depth: u32, reopened_at: usize) {
    let trace: Trace = world.disk.trace();
    let mut cursor = trace.cursor();
    met.depth_max = met.depth_max.max(depth);
    loop {
        let at = cursor.at();
        let promise = world.promises.iter().rfind(|promise| promise.at_op <= at).unwrap();
        for choice in choices(draw, cursor.pending_len()) {
            let image = cursor.image(&choice);
            met.images += 1;
            met.cut_in_reopen += u64::from(at < reopened_at);
            let label = format!("depth {depth}, cut at {at} of {}, {choice:?}", trace.len());
            let recovered = check_image(&image, world, promise, met, &label);
            // A deeper search costs as much as this one, so only one image in so many begins one. Segments
            // without frames are left just after an opening.
            let is_opening = depth > 0 && at.abs_diff(reopened_at) < 3;
            let chance = if is_opening { 60 } else { [30, 160, 400][depth.min(2) as usize] };
            if depth < 3 && met.images < met.images_wanted && draw.below(chance) == 0 {
                let next = go_on(image, world, promise, &recovered, draw, &label);
                search(&next.0, draw, met, depth + 1, next.1);
            }
        }
        if !cursor.advance() {
            return;
        }
    }
}

/// Recovers from both superblocks: a prefix of the history that holds all that was acknowledged.
fn check_image(image: &MemDisk, world: &World, promise: &Promise, met: &mut Met, label: &str) -> Recovered {
    let mut last = None;
    for from in [promise.older, promise.newer] {
        let (recovered, found) = replay(image, &from).unwrap_or_else(|error| panic!("{label}: {error}"));
        let wanted = &world.history[from.seq.0 as usize..];
        assert!(found.len() <= wanted.len(), "{label}: more than was written");
        for (record, wanted) in found.iter().zip(wanted) {
            assert!(record.bytes == *wanted, "{label}: commit {} is not what was written", record.seq);
        }
        assert_eq!(recovered.last_seq.0, from.seq.0 + found.len() as u64, "{label}");
        assert!(recovered.last_seq.0 >= promise.acknowledged, "{label}: lost {}", promise.acknowledged);
        assert!(last.is_none_or(|last| last == recovered.last_seq), "{label}: superblocks disagree");
        last = Some(recovered.last_seq);
        met.torn += u64::from(recovered.torn);
        met.unmarked += u64::from(recovered.unmarked_group_count > 0);
        met.kept_unacknowledged += u64::from(recovered.last_seq.0 > promise.acknowledged);
        met.lost_unacknowledged += u64::from(recovered.last_seq.0 < world.history.len() as u64);
        if from == promise.newer {
            return recovered;
        }
    }
    unreachable!("the newer superblock comes last");
}

/// Opens the image for writing, from either superblock, and writes on. Also returns the operation at which
/// the opening ended.
fn go_on(
    image: MemDisk,
    world: &World,
    promise: &Promise,
    recovered: &Recovered,
    draw: &mut Draw,
    label: &str,
) -> (World, usize) {
    image.record();
    let older = draw.below(4) == 0;
    let from_older = older.then(|| replay(&image, &promise.older).unwrap().0);
    let recovered = from_older.as_ref().unwrap_or(recovered);
    let sync = [SyncMethod::Fdatasync, SyncMethod::Dsync][draw.below(2) as usize];
    // The survey in `recovered` reads the image it was made from.
    let log = Log::reopen(&shared(&image), dir(), identity(), geometry(), sync, continued(recovered))
        .unwrap_or_else(|error| panic!("{label}: {error}"));
    let last = recovered.last_seq.0;
    let reopened_at = image.recorded_len();
    let newer = if older { promise.older } else { promise.newer };
    let first = Promise { at_op: 0, acknowledged: last, newer, older: promise.older };
    let history = world.history[..last as usize].to_vec();
    let mut next = World { disk: image, log, history, promises: vec![first], salt: world.salt + 1 };
    for _ in 0..2 + draw.below(14) {
        next.step(draw);
    }
    (next, reopened_at)
}

fn run(seed: u64, steps: u32) -> Met {
    println!("DURAMEN_SEED={seed}");
    let mut draw = Draw(Random::new(seed));
    let mut met = Met::default();
    let images_wanted = if std::env::var_os("DURAMEN_LONG").is_some() { 100_000 } else { 10_000 };
    for sync in [SyncMethod::Fdatasync, SyncMethod::Dsync] {
        met.images_wanted += images_wanted;
        let mut world = World::born(draw.next(), sync);
        for _ in 0..steps {
            world.step(&mut draw);
        }
        search(&world, &mut draw, &mut met, 0, 0);
    }
    met
}

#[test]
fn every_cut_leaves_a_prefix_with_all_that_was_acknowledged() {
    let met = run(seed(21), 40);
    println!("{met:?}");
    for (name, count) in [
        ("torn tails", met.torn),
        ("unmarked groups", met.unmarked),
        ("unacknowledged commits lost", met.lost_unacknowledged),
        ("unacknowledged commits kept", met.kept_unacknowledged),
        ("cuts while opening", met.cut_in_reopen),
    ] {
        assert!(count > 0, "the search met no {name}: {met:?}");
    }
    assert!(met.depth_max >= 2);
}

/// A power cut while a log is created leaves a log that can be created again, or a complete one.
#[test]
fn creation_survives_a_cut_at_any_operation() {
    let disk = disk(22);
    disk.record();
    let (_, from) = create(&disk, SyncMethod::Fdatasync);
    let trace = disk.stop_recording();
    let mut draw = Draw(Random::new(seed(22)));
    let mut cursor = trace.cursor();
    loop {
        for choice in choices(&mut draw, cursor.pending_len()) {
            let image = cursor.image(&choice);
            if cursor.at() == trace.len() {
                check_replay(&image, &from, &[]);
            }
            let (log, from) = create(&image, SyncMethod::Fdatasync);
            commit(&log, 1, vec![1]);
            check_replay(&image.crash(&CrashChoice::None), &from, &[vec![1]]);
        }
        if !cursor.advance() {
            break;
        }
    }
}

/// D1: a close empties used segments, and its later syncs may have failed. Begun again with another length,
/// such a file must not show the header of its last use. Opening would report that as corruption.
#[test]
fn a_used_segment_is_empty_on_the_disk_before_it_has_another_length() {
    let disk = disk(33);
    drop(create(&disk, SyncMethod::Fdatasync));
    let slot = SegmentSlot(1);
    let path = segment_path(dir(), slot);
    let used = disk.read_file(&path).unwrap();
    let access = Access { mode: OpenMode::Write, sync: SyncMethod::Fdatasync };
    disk.open(&path, access).unwrap().set_len(0).unwrap();
    disk.record();
    let factory = SegmentFactory {
        disk: &disk,
        dir: dir(),
        identity: identity(),
        geometry: geometry(),
        sync: SyncMethod::Fdatasync,
    };
    let bytes = 2 * used.len() as u64;
    factory.make(SpareOrder { slot, bytes }).unwrap();
    let trace = disk.stop_recording();
    let mut cursor = trace.cursor();
    let mut longer_count = 0;
    loop {
        for at in 0..cursor.pending_len() {
            let found = cursor.image(&CrashChoice::Only(at)).read_file(&path).unwrap();
            let is_longer = found.len() as u64 == bytes;
            longer_count += u32::from(is_longer);
            assert!(!is_longer || found[..64] != used[..64], "operation {}, only {at}", cursor.at());
        }
        if !cursor.advance() {
            break;
        }
    }
    assert!(longer_count > 0, "some cut leaves the new length");
}
