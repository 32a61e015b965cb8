//! A blob much larger than memory, written and read: the speed, the peak memory of the process, and the space
//! freed.
//!
//! `cargo run --release -p duramen-sim --example blobs -- DIR [BLOB_MIB] [PEAK_MIB_MAX]`
//!
//! With a last number, a higher peak of anonymous memory is a failure.
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a program that measures and prints")]

use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use duramen::prelude::*;

/// Bytes that no file system can compress or deduplicate.
struct Noise {
    state: u64,
    left: u64,
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX)) / 8 * 8;
        for word in buffer[..count].chunks_exact_mut(8) {
            self.state =
                self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&self.state.to_le_bytes());
        }
        self.left -= count as u64;
        Ok(count)
    }
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("give a directory for the database"));
    let mut number = |or: u64| args.next().map_or(or, |n| n.parse().expect("a number"));
    let (blob_mib, peak_mib_max) = (number(64), number(u64::MAX >> 20));
    let db = Db::options().memory_bytes(64 << 20).open(&dir)?;
    let (stop, peak_kib) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                peak_kib.fetch_max(anonymous_kib(), Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(5));
            }
        });
        let done = run(&db, &dir, blob_mib);
        stop.store(true, Ordering::Relaxed);
        done
    })?;
    let peak_kib = peak_kib.into_inner();
    println!("peak anonymous memory: {:.1} MiB", peak_kib as f64 / 1024.0);
    assert!(peak_kib <= peak_mib_max << 10, "at most {peak_mib_max} MiB were allowed");
    Ok(())
}

fn run(db: &Db, dir: &std::path::Path, blob_mib: u64) -> Result<()> {
    let blobs = db.blobs("b");
    let rate = |began: Instant| blob_mib as f64 / began.elapsed().as_secs_f64();
    for round in 0..2 {
        let began = Instant::now();
        blobs.put("k", Noise { state: round, left: blob_mib << 20 })?;
        println!("in: {blob_mib} MiB at {:.0} MiB/s, data file {} MiB", rate(began), data_mib(dir));
        let mut reader = blobs.get("k")?.expect("it was just put");
        let mut buffer = vec![0; 1 << 20];
        let began = Instant::now();
        let mut read = 0;
        loop {
            let count = reader.read(&mut buffer).expect("the disk reads");
            if count == 0 {
                break;
            }
            read += count as u64;
        }
        assert_eq!(read, blob_mib << 20, "every byte is read");
        println!("out: at {:.0} MiB/s", rate(began));
        let began = Instant::now();
        reader.verify()?;
        println!("verified: at {:.0} MiB/s", rate(began));
        drop(reader);
        let began = Instant::now();
        blobs.delete("k")?;
        db.sweep_blobs()?;
        println!("deleted in {:.0} ms", began.elapsed().as_secs_f64() * 1000.0);
    }
    db.close()?;
    println!("after a clean close: data file {} MiB", data_mib(dir));
    Ok(())
}

/// MiB that the data file takes on the disk.
fn data_mib(dir: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(dir.join("data")).map_or(0, |data| data.blocks() >> 11)
}

fn anonymous_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}
