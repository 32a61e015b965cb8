//! Large blobs through a server: in and out as they are, in little memory, and uploads that are given up by
//! killed clients leave nothing.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use duramen::prelude::*;
use duramen_client::Remote;
use duramen_disk::memory::Random;

use crate::kill_clients::connect;
use crate::killed::{end, start};
use crate::{Wrong, wrong};

const NAMESPACE: &str = "files";

/// What the client and the server may hold of a blob, each.
const HELD_BYTES_MAX: u64 = 64 << 20;

/// What may be left of them: pages of trees, not pieces.
const SPACE_BYTES: u64 = 1 << 20;

/// How long the server may take to delete what nothing names.
const COLLECTED_WITHIN: Duration = Duration::from_secs(30);

/// Numbers of such a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Blobs {
    #[command(flatten)]
    of: crate::Of,
    /// The size of the blob
    #[arg(long, default_value_t = 2048)]
    mib: u64,
    /// Clients that are killed while they upload one
    #[arg(long, default_value_t = 20)]
    given_up: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// An upload that goes on until its process is killed.
#[derive(Debug, clap::Args)]
pub(crate) struct Upload {
    #[command(flatten)]
    of: crate::Of,
    #[arg(long)]
    seed: u64,
}

/// Bytes that no file system can compress.
struct Noise {
    random: Random,
    left: u64,
}

impl Noise {
    fn new(seed: u64, bytes: u64) -> Noise {
        Noise { random: Random::new(seed), left: bytes }
    }
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = if count >= 8 { count / 8 * 8 } else { count };
        for word in buffer[..count].chunks_mut(8) {
            word.copy_from_slice(&self.random.bits().to_le_bytes()[..word.len()]);
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Uploads until it is killed.
pub(crate) fn upload(args: &Upload) -> Result<(), Wrong> {
    let remote = Remote::from(connect(&args.of.db)?);
    remote.blobs(NAMESPACE).put("given up", Noise::new(args.seed, u64::MAX))?;
    Err(wrong("the upload has ended"))
}

/// Runs it all.
pub(crate) fn run(args: &Blobs) -> Result<(), Wrong> {
    drop(crate::open(&args.of.db)?);
    let mut server = start(&args.of.db)?;
    let done = in_and_out(args, &server);
    end(&mut server)?;
    done?;
    // After a kill.
    let db = crate::open(&args.of.db)?;
    let mut reader = db.blobs(NAMESPACE).get("large")?.ok_or_else(|| wrong("the blob is not there"))?;
    reader.verify()?;
    drop((reader, db));
    let before = used_bytes(&args.of.db)?;
    give_up(args)?;
    let after = used_bytes(&args.of.db)?;
    println!("the data file used {} MiB before them, and {} MiB behind them", before >> 20, after >> 20);
    if after > before + SPACE_BYTES { Err(wrong("space is left of them")) } else { Ok(()) }
}

fn in_and_out(args: &Blobs, server: &Child) -> Result<(), Wrong> {
    let remote = Remote::from(connect(&args.of.db)?);
    let held = Peaks::new([server.id(), std::process::id()])?;
    let (bytes, blobs) = (args.mib << 20, remote.blobs(NAMESPACE));
    let (stored, read) = held.during(|| {
        let begun = Instant::now();
        blobs.put("large", Noise::new(args.seed, bytes))?;
        let stored = begun.elapsed();
        let begun = Instant::now();
        let mut reader = blobs.get("large")?.ok_or_else(|| wrong("the blob was stored and is not there"))?;
        compare(&mut reader, &mut Noise::new(args.seed, bytes))?;
        Ok((stored, begun.elapsed()))
    })?;
    let [server, client] = held.grown();
    let rate = |took: Duration| args.mib as f64 / took.as_secs_f64();
    println!(
        "seed {}: a blob of {} MiB: in at {:.0} MiB/s, out at {:.0} MiB/s; the server held {} MiB more than before, the client {}",
        args.seed,
        args.mib,
        rate(stored),
        rate(read),
        server >> 20,
        client >> 20,
    );
    if server.max(client) > HELD_BYTES_MAX {
        return Err(wrong(format!("more than {} MiB were held", HELD_BYTES_MAX >> 20)));
    }
    Ok(())
}

fn compare(found: &mut dyn Read, wanted: &mut dyn Read) -> Result<(), Wrong> {
    let (mut here, mut there) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0_u64;
    loop {
        let count = wanted.read(&mut there).map_err(|error| wrong(error.to_string()))?;
        let read = if count == 0 {
            found.read(&mut here)
        } else {
            found.read_exact(&mut here[..count]).map(|()| count)
        };
        let read = read.map_err(|error| wrong(format!("after {at} bytes: {error}")))?;
        if read != count || here[..count] != there[..count] {
            return Err(wrong(format!("the blob differs within a MiB behind byte {at}")));
        }
        if count == 0 {
            return Ok(());
        }
        at += count as u64;
    }
}

/// Kills clients in the middle of their uploads.
fn give_up(args: &Blobs) -> Result<(), Wrong> {
    let (mut random, me) = (Random::new(args.seed), std::env::current_exe());
    let me = me.map_err(|error| wrong(error.to_string()))?;
    let db = crate::open(&args.of.db)?;
    let _server = duramen_server::local(&db)?;
    let before = pieces(&db)?;
    let mut most = 0;
    for number in 0..args.given_up {
        let mut upload = Command::new(&me);
        upload.arg("upload").arg("--db").arg(&args.of.db).args(["--seed", &number.to_string()]);
        let mut upload =
            upload.spawn().map_err(|error| wrong(format!("the client does not start: {error}")))?;
        // Some are killed before their first piece is stored.
        std::thread::sleep(Duration::from_millis(20 + random.below(600) as u64));
        most = most.max(pieces(&db)?);
        end(&mut upload)?;
    }
    let begun = Instant::now();
    while pieces(&db)? != before {
        if begun.elapsed() > COLLECTED_WITHIN {
            return Err(wrong(format!("{} pieces are left, and {before} were before", pieces(&db)?)));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    println!(
        "{} uploads given up: {} pieces at most, none {} ms after the last",
        args.given_up,
        most.saturating_sub(before),
        begun.elapsed().as_millis(),
    );
    if args.given_up >= 10 && most <= before {
        return Err(wrong("no upload had stored anything: nothing was checked"));
    }
    match db.check_documents()?.problems.first() {
        Some(problem) => Err(wrong(problem.to_string())),
        None => Ok(()),
    }
}

/// The stored pieces of all blobs.
fn pieces(db: &Db) -> Result<u64, Wrong> {
    let snapshot = db.snapshot()?;
    let trees = snapshot.trees()?;
    let pieces = trees.iter().find(|tree| tree.name == "duramen/blob-pieces");
    Ok(pieces.map(|tree| snapshot.tree_len(tree)).transpose()?.unwrap_or(0))
}

/// What the data file has in use, once the database was closed: that frees what can be freed.
fn used_bytes(path: &Path) -> Result<u64, Wrong> {
    crate::open(path)?.close()?;
    let stats = crate::open(path)?.stats();
    Ok(stats.space.used_blocks * stats.block_bytes)
}

/// The anonymous memory of two processes, before and at most.
struct Peaks {
    processes: [u32; 2],
    before: [u64; 2],
    peaks: [AtomicU64; 2],
}

impl Peaks {
    fn new(processes: [u32; 2]) -> Result<Peaks, Wrong> {
        let before = [crate::hostile::anonymous(processes[0])?, crate::hostile::anonymous(processes[1])?];
        Ok(Peaks { processes, before, peaks: Default::default() })
    }

    /// Watches while something is done.
    fn during<T>(&self, work: impl FnOnce() -> Result<T, Wrong>) -> Result<T, Wrong> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for (process, peak) in self.processes.iter().zip(&self.peaks) {
                        peak.fetch_max(crate::hostile::anonymous(*process)?, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok(())
            });
            let done = work();
            is_over.store(true, Ordering::Relaxed);
            watching.join().map_err(|_| wrong("the watch of memory panicked"))?.and(done)
        })
    }

    fn grown(&self) -> [u64; 2] {
        [0, 1].map(|at| self.peaks[at].load(Ordering::Relaxed).saturating_sub(self.before[at]))
    }
}
