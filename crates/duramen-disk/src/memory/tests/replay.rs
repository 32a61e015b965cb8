//! A trace replays to the same disk it was recorded on, at every boundary. Otherwise the crash search would
//! judge the engine by states that no disk had.

use std::collections::HashSet;

use super::{ALL, NONE, create, path, with_file};
use crate::memory::random::Random;
use crate::memory::{CrashChoice, MemDisk, OpKind, Trace};
use crate::{Access, Disk, SyncMethod};

const CHOICES: [CrashChoice; 9] = [
    CrashChoice::None,
    CrashChoice::All,
    CrashChoice::AllBut(1),
    CrashChoice::Only(0),
    CrashChoice::Prefix(2),
    CrashChoice::DataOnly,
    CrashChoice::EntriesOnly,
    CrashChoice::Torn { index: 1, seed: 4 },
    CrashChoice::Random { seed: 9 },
];

/// One random call on one of a few files; errors (a missing file) are part of the workload.
fn step(disk: &MemDisk, random: &mut Random) {
    let name = ["/a", "/b", "/d/c"][random.below(3)];
    let sync = [SyncMethod::Fdatasync, SyncMethod::Dsync][random.below(2)];
    let offset = random.bits() % 20_000;
    let bytes = vec![random.bits().to_le_bytes()[0]; random.below(9000)];
    let open = || disk.open(path(name), Access { sync, ..Access::WRITE });
    match random.below(11) {
        0 => drop(disk.open(path(name), Access::CREATE)),
        1 => drop(disk.create_dir(path("/d"))),
        2 => drop(disk.remove(path(name))),
        3 => drop(disk.rename(path(name), path(["/a", "/b", "/d/c"][random.below(3)]))),
        4 => drop(disk.sync_dir(path(["/", "/d"][random.below(2)]))),
        5 => drop(open().map(|file| file.set_len(offset))),
        6 => drop(open().map(|file| file.punch(offset, bytes.len() as u64))),
        7 => drop(open().map(|file| file.sync_data())),
        8 => drop(open().map(|file| file.reserve(offset, 5000))),
        9 => drop(open().map(|file| file.write_durable_at(&bytes, offset))),
        _ => drop(open().map(|file| file.write_at(&bytes, offset))),
    }
}

fn sync_all(disk: &MemDisk) {
    for file in disk.files() {
        disk.open(&file, Access::READ).unwrap().sync_data().unwrap();
    }
    disk.sync_dir(path("/")).unwrap();
    drop(disk.sync_dir(path("/d")));
}

#[test]
fn replayed_images_are_those_of_the_live_disk() {
    for seed in 0..20 {
        let (disk, mut random) = (MemDisk::new(seed), Random::new(seed));
        // Recording may begin while changes are pending.
        (0..30).for_each(|_| step(&disk, &mut random));
        disk.record();
        let hashes = |disk: &MemDisk| CHOICES.map(|choice| disk.crash(&choice).image_hash());
        let mut live = vec![(0, hashes(&disk))];
        for _ in 0..200 {
            step(&disk, &mut random);
            // A durable write is two operations. The boundary between them has no live disk to compare with.
            live.push((disk.recorded_len(), hashes(&disk)));
            assert_eq!(disk.crash(&ALL).image_hash(), disk.image_hash(), "seed {seed}: all is current");
        }
        sync_all(&disk);
        assert_eq!(disk.pending_len(), 0, "seed {seed}");
        assert_eq!(disk.crash(&NONE).image_hash(), disk.image_hash(), "seed {seed}: all is durable");
        let trace = disk.stop_recording();
        let mut cursor = trace.cursor();
        for (at_op, expected) in &live {
            cursor.seek(*at_op);
            for (choice, expected) in CHOICES.iter().zip(expected) {
                assert_eq!(cursor.image_hash(choice), *expected, "seed {seed}, op {at_op}, {choice:?}");
                assert_eq!(cursor.image(choice).image_hash(), *expected);
            }
            assert_eq!(cursor.pending().len(), cursor.pending_len());
        }
        let (at_op, expected) = live[live.len() / 2];
        assert_eq!(trace.crash_image(at_op, &CHOICES[8]).image_hash(), expected[8]);
    }
}

#[test]
fn durable_write_is_two_boundaries() {
    for sync in [SyncMethod::Fdatasync, SyncMethod::Dsync] {
        let (disk, file) = with_file(b"....", sync);
        disk.record();
        file.write_durable_at(b"ab", 0).unwrap();
        let trace = disk.stop_recording();
        assert_eq!(trace.len(), 2);
        assert_eq!((trace.op(0).kind, trace.op(1).kind), (OpKind::Write, OpKind::Sync));
        let read = |at_op, choice| trace.crash_image(at_op, choice).read_file("/f").unwrap();
        assert_eq!(read(1, &NONE), b"....");
        assert_eq!(read(1, &ALL), b"ab..");
        assert_eq!(read(2, &NONE), b"ab..");
    }
}

#[test]
fn marks_name_the_phase_and_are_boundaries_too() {
    let disk = MemDisk::new(1);
    disk.annotate("before the recording: not kept");
    disk.record();
    create(&disk, "/f").write_at(b"x", 3).unwrap();
    disk.annotate("checkpoint");
    disk.sync_dir(path("/")).unwrap();
    let trace = disk.trace();
    assert_eq!((trace.len(), disk.recorded_len()), (4, 4));
    assert_eq!((trace.mark_before(2), trace.mark_before(3)), (None, Some("checkpoint")));
    assert_eq!(trace.marks().collect::<Vec<_>>(), [(2, "checkpoint")]);
    assert_eq!(trace.describe(1), "Write /f @ 0x3 + 1");
    let mut cursor = trace.cursor();
    let mut pending = vec![cursor.pending_len()];
    while cursor.advance() {
        pending.push(cursor.pending_len());
    }
    assert_eq!(pending, [0, 1, 2, 2, 1]);
    cursor.seek(2);
    assert_eq!(cursor.pending()[1].kind, OpKind::Write);
    // Reading the trace does not end the recording.
    disk.annotate("more");
    assert_eq!(disk.stop_recording().len(), 5);
    assert!(disk.trace().is_empty());
}

#[test]
fn image_hash_tells_contents_names_and_lengths_apart() {
    let hash = |files: &[(&str, &[u8])]| {
        let disk = MemDisk::new(1);
        files.iter().for_each(|(name, bytes)| disk.write_file(name, bytes).unwrap());
        disk.image_hash()
    };
    let big = |place: usize| {
        let mut bytes = vec![0; 600_000];
        bytes[place] = 1;
        bytes
    };
    let hashes = [
        hash(&[]),
        hash(&[("/a", b"")]),
        hash(&[("/b", b"")]),
        hash(&[("/a", b"\0")]),
        hash(&[("/a", b"\0\0")]),
        hash(&[("/a", b"x"), ("/b", b"y")]),
        hash(&[("/a", b"y"), ("/b", b"x")]),
        hash(&[("/a", &big(0))]),
        hash(&[("/a", &big(4096))]),
        hash(&[("/a", &big(262_144))]),
        hash(&[("/a", &big(524_288))]),
    ];
    assert_eq!(HashSet::from(hashes).len(), hashes.len());
    // A hole and written zeroes read the same, so they hash the same.
    let holes = MemDisk::new(1);
    create(&holes, "/z").set_len(600_000).unwrap();
    assert_eq!(holes.image_hash(), hash(&[("/z", &vec![0; 600_000])]));
}

#[test]
fn cached_hash_follows_every_write() {
    let (disk, file) = with_file(&[0; 600_000], SyncMethod::Fdatasync);
    let mut seen = HashSet::from([disk.image_hash()]);
    for place in [0, 4095, 4096, 300_000, 599_999] {
        file.write_at(b"x", place).unwrap();
        assert!(seen.insert(disk.image_hash()), "write at {place} is not seen");
    }
    file.punch(4096, 4096).unwrap();
    assert!(seen.insert(disk.image_hash()));
    disk.flip_bit("/f", 70_000, 1).unwrap();
    assert!(seen.insert(disk.image_hash()));
}

#[test]
fn raw_changes_are_durable_at_once_and_replayed() {
    let disk = MemDisk::new(1);
    disk.record();
    let file = create(&disk, "/d");
    file.write_at(b"pending", 0).unwrap();
    disk.write_file("/d", b"raw").unwrap();
    disk.write_file("/wal/1", b"one").unwrap();
    disk.delete("/wal").unwrap();
    let trace = disk.stop_recording();
    let files = |at_op| trace.crash_image(at_op, &NONE).files().len();
    assert_eq!((0..=trace.len()).map(files).collect::<Vec<_>>(), [0, 0, 0, 1, 2, 1]);
    assert_eq!(trace.crash_image(3, &ALL).read_file("/d").unwrap(), b"raw");
    let mut bytes = [0; 3];
    file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"raw", "an open handle sees what was put");
    assert_eq!(disk.kind(path("/wal")).unwrap(), None);
}

#[test]
fn no_pending_name_comes_back_over_a_raw_change() {
    let disk = MemDisk::new(1);
    disk.write_file("/a", b"old").unwrap();
    disk.rename(path("/a"), path("/b")).unwrap();
    create(&disk, "/c");
    disk.write_file("/b", b"raw").unwrap();
    disk.delete("/c").unwrap();
    for choice in [NONE, ALL, CrashChoice::EntriesOnly] {
        let image = disk.crash(&choice);
        assert_eq!(image.files(), [path("/b")], "{choice:?}");
        assert_eq!(image.read_file("/b").unwrap(), b"raw");
    }
}

/// A run that no seed repeats is replayed from its bytes: they must lead to the same disks.
#[test]
fn a_trace_survives_its_bytes() {
    for seed in 0..10 {
        let (disk, mut random) = (MemDisk::new(seed), Random::new(seed));
        disk.record();
        disk.annotate("begun");
        (0..120).for_each(|_| step(&disk, &mut random));
        if let Some(file) = disk.files().first() {
            disk.flip_bit(file, 0, 3).ok();
            disk.delete(file).unwrap();
        }
        disk.write_file("/e/put", &[7; 3]).unwrap();
        let trace = disk.stop_recording();
        let bytes = trace.encode().unwrap();
        let again = Trace::decode(&bytes).unwrap();
        assert_eq!(again.len(), trace.len());
        let (mut one, mut other) = (trace.cursor(), again.cursor());
        for at in 0..=trace.len() {
            one.seek(at);
            other.seek(at);
            for choice in CHOICES {
                assert_eq!(
                    one.image_hash(&choice),
                    other.image_hash(&choice),
                    "seed {seed}, op {at}, {choice:?}"
                );
            }
            if at < trace.len() {
                assert_eq!(trace.op(at), again.op(at));
            }
        }
        for cut in 0..bytes.len() {
            assert!(Trace::decode(&bytes[..cut]).is_err(), "the first {cut} of {} bytes", bytes.len());
        }
        let late = MemDisk::new(1);
        late.write_file("/f", b"there").unwrap();
        late.record();
        assert!(late.trace().encode().is_err(), "what was there before is in no operation");
    }
}
