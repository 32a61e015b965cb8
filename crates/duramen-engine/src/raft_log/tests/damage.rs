//! Bytes of a small log flipped, each with `DURAMEN_LONG`: a flip is named, or it changes nothing that is
//! decided.

use super::*;

/// What an opening after damage may find.
#[derive(Debug, Default)]
struct Met {
    named: u64,
    harmless: u64,
    shorter: u64,
}

/// Flips each byte of each file. What is decided is there, or the error names the file; so is the vote.
fn sweep(disk: &MemDisk, wanted: &[Entry], decided: u64, vote: Option<Vote>) -> Met {
    let mut met = Met::default();
    for path in disk.files().iter().filter(|path| path.starts_with("/raft")) {
        let length = disk.read_file(path).unwrap().len() as u64;
        let stride = if std::env::var_os("DURAMEN_LONG").is_some() { 1 } else { 5 };
        for offset in (0..length).step_by(stride) {
            let image = disk.deep_clone();
            image.flip_bit(path, offset, (offset % 8) as u8).unwrap();
            let label = format!("{} @ {offset:#x}", path.display());
            let opened = std::panic::catch_unwind(|| open(&image));
            match opened.unwrap_or_else(|_| panic!("{label}: a panic")) {
                Ok((log, found)) => {
                    assert_eq!(found.vote, vote, "{label}");
                    let entries = all(&log);
                    assert_eq!(entries[..], wanted[..entries.len()], "{label}");
                    let last = log.end().id.seq.0;
                    assert!(last >= decided, "{label}: ends with {last}, {decided} is decided");
                    let is_whole = entries.len() == wanted.len();
                    *(if is_whole { &mut met.harmless } else { &mut met.shorter }) += 1;
                }
                Err(error) => {
                    assert!(
                        error.is_corruption() || error.code() == crate::error::Code::Unsupported,
                        "{label}: {error}"
                    );
                    assert!(error.message().contains("/raft"), "{label}: {error}");
                    met.named += 1;
                }
            }
        }
    }
    println!("{met:?}");
    met
}

/// A log with a purged part, a cut, entries in several segments and a vote.
fn written(disk: &MemDisk, decided: u64) -> (Vec<Entry>, Option<Vote>) {
    let log = created(disk);
    append(&log, entries(101, 104, 1));
    log.decide(CommitSeq(102)).unwrap();
    log.purge(CommitSeq(101), ignore()).unwrap();
    log.cut_after(CommitSeq(103), ignore()).unwrap();
    let vote = Vote { term: 2, node: 3, leads: true };
    log.save_vote(vote, ignore()).unwrap();
    log.step().unwrap();
    append(&log, entries(104, 107, 2));
    append(&log, entries(108, 109, 2));
    log.decide(CommitSeq(decided)).unwrap();
    let wanted = all(&log);
    log.close().unwrap();
    (wanted, Some(vote))
}

#[test]
fn a_flipped_byte_is_named_or_harmless_once_all_is_decided() {
    let disk = disk(41);
    let (wanted, vote) = written(&disk, 109);
    let met = sweep(&disk, &wanted, 109, vote);
    assert!(met.named > 0 && met.harmless > 0, "{met:?}");
    assert_eq!(met.shorter, 0, "nothing that is decided is taken for a torn tail");
}

/// The limit of D5 in Raft's log: what is synced and not known to be decided may pass for a torn tail.
#[test]
fn a_flipped_byte_takes_at_most_what_is_not_decided() {
    let disk = disk(42);
    let (wanted, vote) = written(&disk, 105);
    let met = sweep(&disk, &wanted, 105, vote);
    assert!(met.named > 0 && met.harmless > 0 && met.shorter > 0, "{met:?}");
}
