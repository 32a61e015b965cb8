//! What a drive with a volatile cache promises, and what a cut leaves of it. Pure, so these run everywhere.

use duramen_powercut::content::Content;
use duramen_powercut::drive::{Cache, Counts, Drive, Write};
use duramen_powercut::moment::{Moment, Span};
use duramen_powercut::random::Random;
use duramen_powercut::survival::{SECTOR_BYTES, Survival, seed_of_drive, survivors};

const SIZE_BYTES: u64 = 1 << 20;
const BLOCK: usize = 4096;

fn drive(cache: Cache) -> Drive {
    Drive::new(cache, Content::new(SIZE_BYTES))
}

fn write(drive: &mut Drive, offset: u64, byte: u8, bytes: usize) {
    let id = drive.begin_write(Write { offset, bytes: vec![byte; bytes] });
    drive.complete_write(id);
}

fn flush(drive: &mut Drive) {
    let id = drive.begin_flush();
    drive.complete_flush(id);
}

fn at(content: &Content, offset: u64, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; bytes];
    content.read(offset, &mut buffer);
    buffer
}

fn durable_byte(drive: &Drive, offset: u64) -> u8 {
    at(drive.durable(), offset, 1)[0]
}

/// All bytes of a content.
fn all(content: &Content) -> Vec<u8> {
    at(content, 0, usize::try_from(SIZE_BYTES).unwrap())
}

#[test]
fn an_answered_write_is_read_and_is_not_durable_before_a_flush() {
    let mut drive = drive(Cache::Volatile);
    write(&mut drive, 8192, 7, BLOCK);
    let mut read = [0; 2];
    drive.read(8191, &mut read);
    assert_eq!(read, [0, 7]);
    assert_eq!((durable_byte(&drive, 8192), drive.pending_count()), (0, 1));
    flush(&mut drive);
    assert_eq!((durable_byte(&drive, 8192), drive.pending_count()), (7, 0));
}

/// A file system may rely on a flush only for writes completed before it arrived, not for later ones.
#[test]
fn a_flush_covers_what_was_answered_before_it_arrived_and_nothing_else() {
    let mut drive = drive(Cache::Volatile);
    write(&mut drive, 0, 1, BLOCK);
    let in_flight = drive.begin_write(Write { offset: 4096, bytes: vec![2; BLOCK] });
    let flush = drive.begin_flush();
    drive.complete_write(in_flight);
    write(&mut drive, 8192, 3, BLOCK);
    assert_eq!(durable_byte(&drive, 0), 0, "a flush that was not answered promises nothing");
    drive.complete_flush(flush);
    let found = [0, 4096, 8192].map(|offset| durable_byte(&drive, offset));
    assert_eq!((found, drive.pending_count()), ([1, 0, 0], 2));
}

#[test]
fn flushes_that_overlap_each_cover_their_own() {
    let mut drive = drive(Cache::Volatile);
    write(&mut drive, 0, 1, BLOCK);
    let first = drive.begin_flush();
    write(&mut drive, 4096, 2, BLOCK);
    let second = drive.begin_flush();
    drive.complete_flush(second);
    drive.complete_flush(first);
    assert_eq!([0, 4096].map(|offset| durable_byte(&drive, offset)), [1, 2]);
    assert_eq!((drive.counts().writes, drive.counts().flushes), (2, 2));
}

#[test]
fn a_write_through_drive_keeps_every_answered_write_and_may_lose_one_in_flight() {
    let mut drive = drive(Cache::WriteThrough);
    write(&mut drive, 0, 1, BLOCK);
    let _in_flight = drive.begin_write(Write { offset: 4096, bytes: vec![2; BLOCK] });
    assert_eq!((durable_byte(&drive, 0), drive.pending_count(), drive.in_flight_count()), (1, 0, 1));
    let kept: Vec<u8> =
        (0..64).map(|seed| at(&survivors(&drive, seed, 0, &[]).content, 4096, 1)[0]).collect();
    assert!(kept.contains(&0) && kept.contains(&2), "{kept:?}");
}

#[test]
fn a_lying_drive_answers_flushes_and_does_nothing() {
    let mut drive = drive(Cache::Lying);
    write(&mut drive, 0, 1, BLOCK);
    flush(&mut drive);
    assert_eq!((durable_byte(&drive, 0), drive.pending_count(), drive.counts().flushes), (0, 1, 1));
}

#[test]
fn arming_makes_what_came_before_durable_and_counts_from_zero() {
    let mut drive = drive(Cache::Lying);
    write(&mut drive, 0, 1, BLOCK);
    drive.arm();
    assert_eq!((durable_byte(&drive, 0), drive.pending_count()), (1, 0));
    assert_eq!((drive.counts().writes, drive.counts().flushes), (0, 0));
}

/// A cache is finite: a drive that is never flushed still writes back its oldest data.
#[test]
fn the_oldest_write_becomes_durable_when_the_cache_is_full() {
    let mut drive = drive(Cache::Volatile).with_pending_bytes_max(2 * BLOCK as u64);
    for (place, byte) in [(0, 1), (4096, 2), (8192, 3)] {
        write(&mut drive, place, byte, BLOCK);
    }
    let found = [0, 4096, 8192].map(|offset| durable_byte(&drive, offset));
    assert_eq!((found, drive.pending_count()), ([1, 0, 0], 2));
}

fn busy_drive() -> Drive {
    let mut drive = drive(Cache::Volatile);
    for block in 0..64 {
        write(&mut drive, block * BLOCK as u64, u8::try_from(block + 1).unwrap(), BLOCK);
    }
    drive
}

#[test]
fn a_seed_and_a_variant_leave_the_same_content_each_time_and_others_leave_others() {
    let drive = busy_drive();
    let image = |seed, variant| all(&survivors(&drive, seed, variant, &[]).content);
    assert_eq!(image(5, 0), image(5, 0));
    let distinct: std::collections::BTreeSet<Vec<u8>> =
        (0..8).flat_map(|seed| [image(seed, 0), image(seed, 1)]).collect();
    assert!(distinct.len() > 10, "{} of 16", distinct.len());
}

/// One cut hits both drives, and each makes its own choice: with some seed one keeps everything and the other
/// nothing.
#[test]
fn each_drive_of_a_run_chooses_by_its_own_seed() {
    assert_eq!(seed_of_drive(5, 0), 5, "the first drive of two chooses as an only one does");
    assert_eq!(seed_of_drive(5, 1), seed_of_drive(5, 1));
    let drive = busy_drive();
    let kept = |seed, index| survivors(&drive, seed_of_drive(seed, index), 0, &[]).kept;
    let pairs: Vec<(usize, usize)> = (0..300).map(|seed| (kept(seed, 0), kept(seed, 1))).collect();
    assert!(pairs.iter().any(|pair| pair.0 >= 63 && pair.1 == 0), "{pairs:?}");
    assert!(pairs.iter().any(|pair| pair.0 == 0 && pair.1 >= 63), "{pairs:?}");
}

#[test]
fn every_kind_of_survival_is_drawn_and_its_counts_add_up() {
    let drive = busy_drive();
    let mut kinds = [0; 4];
    for seed in 0..200 {
        let left = survivors(&drive, seed, 0, &[]);
        assert_eq!(left.kept + left.torn + left.dropped, 64, "{left:?}");
        let kind = match left.survival {
            Survival::Nothing => 0,
            Survival::Prefix(_) => 1,
            Survival::AllBut(_) => 2,
            Survival::Subset { .. } => 3,
        };
        kinds[kind] += 1;
        match left.survival {
            Survival::Nothing => assert_eq!(all(&left.content), all(drive.durable())),
            Survival::AllBut(lost) => {
                assert_eq!((left.kept, left.dropped), (63, 1));
                assert_eq!(at(&left.content, (lost * BLOCK) as u64, BLOCK), vec![0; BLOCK]);
            }
            Survival::Prefix(count) => assert_eq!(left.kept, count),
            Survival::Subset { .. } => {}
        }
    }
    assert!(kinds.iter().all(|count| *count > 5), "{kinds:?}");
}

/// Each sector is the old one or the new one; some image has both in one write, or nothing would be torn.
#[test]
fn a_write_is_torn_at_sectors_only() {
    let mut drive = drive(Cache::Volatile);
    write(&mut drive, 0, 1, 8 * BLOCK);
    flush(&mut drive);
    write(&mut drive, 0, 2, 8 * BLOCK);
    let mut torn_count = 0;
    for seed in 0..300 {
        let left = survivors(&drive, seed, 0, &[]);
        let bytes = at(&left.content, 0, 8 * BLOCK);
        let sectors: Vec<u8> = bytes.chunks(SECTOR_BYTES).map(|sector| sector[0]).collect();
        assert!(bytes.chunks(SECTOR_BYTES).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        assert!(sectors.iter().all(|byte| [1, 2].contains(byte)));
        torn_count += u32::from(sectors.contains(&1) && sectors.contains(&2));
    }
    assert!(torn_count > 30, "{torn_count}");
}

/// ext4 and btrfs expect 4 KiB superblocks to be whole: torn there, they could not be mounted at all.
#[test]
fn a_superblock_is_whole_and_the_rest_of_the_same_write_may_be_torn() {
    let mut drive = drive(Cache::Volatile);
    write(&mut drive, 4096, 2, 3 * BLOCK);
    let mut torn_around = 0;
    for seed in 0..300 {
        let left = survivors(&drive, seed, 0, &[8192]);
        let whole = at(&left.content, 8192, BLOCK);
        assert!(whole.iter().all(|byte| *byte == whole[0]), "seed {seed}");
        let around = [at(&left.content, 4096, BLOCK), at(&left.content, 12_288, BLOCK)].concat();
        torn_around += u32::from(around.contains(&0) && around.contains(&2));
    }
    assert!(torn_around > 30, "{torn_around}");
}

/// A cache is coherent: a surviving sector is the newest that survived, never an older one over it.
#[test]
fn an_older_write_never_covers_a_newer_one_that_survived() {
    let mut drive = drive(Cache::Volatile);
    write(&mut drive, 0, 1, BLOCK);
    write(&mut drive, 0, 2, BLOCK);
    for seed in 0..200 {
        let left = survivors(&drive, seed, 0, &[]);
        if left.kept == 2 {
            assert_eq!(at(&left.content, 0, 1), [2], "seed {seed}");
        }
    }
}

/// Two concurrent flushes complete together: no third one arrives at the count between them.
#[test]
fn a_moment_that_was_passed_comes_with_the_next() {
    let drives = [0; 2].map(|_| {
        let mut drive = drive(Cache::Volatile);
        write(&mut drive, 0, 1, BLOCK);
        flush(&mut drive);
        drive
    });
    let both: Counts = drives.iter().map(Drive::counts).sum();
    assert_eq!((both.writes, both.flushes), (2, 2));
    assert!(!Moment::Flushes(3).is_at_flush(both) && !Moment::Writes(3).is_at_write(both));
    for count in [0, 1, 2] {
        assert!(Moment::Flushes(count).is_at_flush(both) && Moment::Writes(count).is_at_write(both));
    }
    assert!(!Moment::Writes(1).is_at_flush(both) && !Moment::Ms(0).is_at_write(both));
}

#[test]
fn spans_and_moments_are_read_as_they_are_written() {
    let span: Span = "5..60".parse().unwrap();
    assert_eq!((span.low, span.high, span.to_string()), (5, 60, "5..60".to_owned()));
    assert_eq!("7".parse::<Span>().unwrap(), Span { low: 7, high: 7 });
    for wrong in ["", "a..b", "9..3", "-1..2", "1..", ".."] {
        assert!(wrong.parse::<Span>().is_err(), "{wrong}");
    }
    let mut random = Random::new(3);
    let drawn: Vec<u64> = (0..1000).map(|_| span.draw(&mut random)).collect();
    assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&5), Some(&60)));
    for moment in [Moment::Ms(3), Moment::Writes(0), Moment::Flushes(u64::MAX)] {
        assert_eq!(moment.to_string().parse::<Moment>().unwrap(), moment);
    }
}
