//! An observer that reads the headers of log segments while another process opens the database.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use duramen_disk::memory::CrashChoice;
use duramen_disk::{Access, Disk, File, FileSystem, Lock, LockError, MemDisk, PathKind};
use duramen_engine::{CommitSeq, Durability, Engine, ObserveFrom, Observer, Options};

use crate::basics::{open, tiny};

/// A disk that runs something once, before a file is opened.
struct Interrupted {
    inner: MemDisk,
    before: PathBuf,
    run: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupted").field("before", &self.before).finish_non_exhaustive()
    }
}

impl Disk for Interrupted {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let run = if path == self.before { self.run.lock().unwrap().take() } else { None };
        run.into_iter().for_each(|run| run());
        self.inner.open(path, access)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.inner.list(path)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }
    fn kind(&self, path: &Path) -> io::Result<Option<PathKind>> {
        self.inner.kind(path)
    }
    fn lock(&self, path: &Path, exclusive: bool) -> Result<Box<dyn Lock>, LockError> {
        self.inner.lock(path, exclusive)
    }
    fn file_system(&self, path: &Path) -> io::Result<FileSystem> {
        self.inner.file_system(path)
    }
    fn wall_ns(&self) -> u64 {
        self.inner.wall_ns()
    }
    fn monotonic_ns(&self) -> u64 {
        self.inner.monotonic_ns()
    }
    fn random(&self) -> u64 {
        self.inner.random()
    }
}

fn options() -> Options {
    Options { memory_bytes: 16 << 20, ..tiny() }
}

/// A database after a power cut and so many openings that were killed, and its last commit. No durable
/// watermark in the log covers that commit.
fn cut(commits: u32, openings: u32) -> (MemDisk, CommitSeq) {
    let disk = MemDisk::new(u64::from(commits));
    let engine = open(&disk, options());
    let tree = engine.transact(Durability::Disk, |tx| tx.create_tree("rows", None)).unwrap().0;
    let mut last = CommitSeq(0);
    for row in 0..commits {
        let put = engine.transact(Durability::Disk, |tx| tx.put(tree, &row.to_be_bytes(), &[1; 280]));
        last = put.unwrap().1.seq();
        engine.step().unwrap();
    }
    engine.abandon();
    let disk = disk.crash(&CrashChoice::None);
    for _ in 0..openings {
        open(&disk, options()).abandon();
    }
    (disk, last)
}

/// An opening frees the segment that its own supersedes. An observer may read one header from before the
/// opening and the other from after it, and then finds neither segment.
#[test]
fn an_opening_between_two_headers_is_no_gap() {
    let mut interrupted_count = 0;
    // The segment that the opening begins is before the one that it frees in few of these.
    for commits in [1, 30, 31, 32, 61, 62, 63] {
        for openings in 0..4 {
            let (start, last) = cut(commits, openings);
            for slot in 1..=9 {
                let begin = |disk: &Arc<Interrupted>| {
                    let disk = Arc::clone(disk) as Arc<dyn Disk>;
                    Observer::open(disk, "/db", options(), ObserveFrom::After(last), Arc::new(|_: &str| true))
                };
                for is_begun in [false, true] {
                    let inner = start.deep_clone();
                    let opened = Arc::new(Mutex::new(None::<Engine>));
                    let before = PathBuf::from(format!("/db/wal/{slot:08}.wal"));
                    let disk = Arc::new(Interrupted { inner: inner.clone(), before, run: Mutex::new(None) });
                    let observer = is_begun.then(|| begin(&disk).unwrap());
                    let engine = Arc::clone(&opened);
                    *disk.run.lock().unwrap() =
                        Some(Box::new(move || *engine.lock().unwrap() = Some(open(&inner, options()))));
                    let next = match observer {
                        Some(mut observer) => observer.next(),
                        None => begin(&disk).and_then(|mut observer| observer.next()),
                    };
                    let next = next.map(|commit| commit.map(|commit| commit.seq));
                    let what = format!("{commits} commits, {openings} openings, segment {slot}, {is_begun}");
                    assert!(matches!(next, Ok(None)), "{what}: {next:?}");
                    let engine = opened.lock().unwrap().take();
                    interrupted_count += u32::from(engine.is_some());
                    engine.into_iter().for_each(Engine::abandon);
                }
            }
        }
    }
    assert!(interrupted_count > 100, "{interrupted_count} openings");
}
