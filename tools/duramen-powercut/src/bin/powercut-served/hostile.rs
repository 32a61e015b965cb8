//! Hostile connections beside good clients: the good ones must get every answer, and the server must not
//! grow.
//!
//! The frames of HTTP/2 are written by hand: no library sends such.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use duramen::prelude::*;
use duramen_client::Address;
use duramen_disk::memory::Random;
use duramen_proto::discovery;

use crate::client::{Clients, Until};
use crate::{Hostile, Wrong, killed, wrong};

/// How many good clients there are.
const GOOD_CLIENTS: u64 = 8;

/// What the server may hold for its clients, beside the engine's memory.
const SERVER_BYTES: u64 = 128 << 20;

/// Documents that scans send to clients which take nothing.
const BIG_DOCUMENTS: u64 = 2_000;
const BIG_DOCUMENT_BYTES: usize = 32 << 10;

const BIG: &str = "big";

/// What a connection does to the server.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Manner {
    /// Connects, and says nothing.
    HalfOpen,
    /// Sends a call, a byte at a time.
    Slow,
    /// Declares a message as long as one may be, and sends a part of it.
    Giant,
    /// Sends as many empty messages inside of a message as fit.
    Empty,
    /// Asks for much, and takes nothing of it.
    Unread,
    /// Asks for everything in another order, and takes nothing of it.
    Sorted,
    /// Begins a transaction, asks for much in it, again and again, and takes nothing of it.
    Transact,
    /// Sends what is no HTTP/2.
    Garbage,
}

const MANNERS: [Manner; 8] = [
    Manner::HalfOpen,
    Manner::Slow,
    Manner::Giant,
    Manner::Empty,
    Manner::Unread,
    Manner::Sorted,
    Manner::Transact,
    Manner::Garbage,
];

/// Runs good clients alone, then beside hostile connections.
pub(crate) fn run(args: &Hostile) -> Result<(), Wrong> {
    let path = &args.of.db;
    let engine_bytes = fill(path)?;
    let mut server = killed::start(path)?;
    let done = beside(args, path, &mut server, engine_bytes);
    killed::end(&mut server)?;
    done
}

/// Documents for the scans; returns the engine's memory.
fn fill(path: &Path) -> Result<u64, Wrong> {
    let db = crate::open(path)?;
    let big = db.ensure(&Schema::new(BIG).key(["id"]))?;
    let text = "x".repeat(BIG_DOCUMENT_BYTES);
    for first in (0..BIG_DOCUMENTS).step_by(100) {
        db.write(|tx| {
            let documents = tx.documents(big.name());
            (first..first + 100).try_for_each(|id| documents.put(doc! { "id": id, "text": text.as_str() }))
        })?;
    }
    let bytes = db.durability_status().memory_bytes;
    db.close()?;
    Ok(bytes)
}

fn beside(args: &Hostile, path: &Path, server: &mut Child, engine_bytes: u64) -> Result<(), Wrong> {
    let is_over = AtomicBool::new(false);
    let (acknowledged, made) = (AtomicU64::new(0), AtomicU64::new(0));
    let clients = Clients {
        address: Address::Directory(path.to_owned()),
        count: GOOD_CLIENTS,
        seed: args.seed,
        is_strict: true,
    };
    let socket = discovery::socket_of(path);
    let peak = std::thread::scope(|scope| {
        let good = scope.spawn(|| {
            clients.run(&Until::Told(&is_over), &|_| {
                acknowledged.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
        });
        for number in 0..args.connections {
            let (socket, is_over, made) = (&socket, &is_over, &made);
            scope.spawn(move || {
                let mut random = Random::new(args.seed ^ number << 20);
                let mixed = MANNERS[usize::try_from(number).unwrap_or(0) % MANNERS.len()];
                let manner = args.manner.unwrap_or(mixed);
                while !is_over.load(Ordering::Relaxed) {
                    made.fetch_add(1, Ordering::Relaxed);
                    // The server closes it, or refuses it: then comes the next.
                    let _ = attack(manner, socket, &mut random, is_over);
                    std::thread::sleep(Duration::from_millis(random.below(200) as u64));
                }
            });
        }
        let peak = watch(server, Duration::from_secs(args.seconds));
        is_over.store(true, Ordering::Relaxed);
        good.join().expect("it does not panic").and(peak)
    })?;
    let bound = (engine_bytes + SERVER_BYTES) / 10 * 11;
    println!(
        "seed {}: {} connections at once, {} made, {} s: {} batches of {GOOD_CLIENTS} good clients acknowledged without an error; {} MiB of memory at most, {} allowed",
        args.seed,
        args.connections,
        made.into_inner(),
        args.seconds,
        acknowledged.load(Ordering::Relaxed),
        peak >> 20,
        bound >> 20,
    );
    if peak > bound {
        return Err(wrong("the server grew beyond its memory"));
    }
    if acknowledged.into_inner() == 0 { Err(wrong("nothing was acknowledged")) } else { Ok(()) }
}

/// The largest anonymous memory of the server, over some time.
fn watch(server: &mut Child, time: Duration) -> Result<u64, Wrong> {
    let start = Instant::now();
    let mut peak = 0;
    while start.elapsed() < time {
        peak = peak.max(anonymous(server.id())?);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(peak)
}

/// The anonymous memory of a process.
pub(crate) fn anonymous(process: u32) -> Result<u64, Wrong> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))
        .map_err(|error| wrong(format!("process {process} is gone: {error}")))?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(kib.ok_or_else(|| wrong(format!("process {process} has ended")))? << 10)
}

fn attack(manner: Manner, socket: &Path, random: &mut Random, is_over: &AtomicBool) -> std::io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    match manner {
        Manner::HalfOpen => {}
        Manner::Garbage => {
            let garbage: Vec<u8> = (0..1_000).map(|_| random.bits().to_le_bytes()[0]).collect();
            stream.write_all(&garbage)?;
        }
        Manner::Slow => {
            let call = [begin(), headers("/duramen.v1.Data/Batch"), data(&[0; 5_000], true)].concat();
            for byte in call {
                stream.write_all(&[byte])?;
                if hold(&mut stream, Duration::from_secs(1), is_over)? {
                    return Ok(());
                }
            }
        }
        Manner::Giant => {
            stream.write_all(&[begin(), headers("/duramen.v1.Data/Batch")].concat())?;
            let length = 16_000_000_u32.to_be_bytes();
            stream.write_all(&data(&[&[0], &length[..]].concat(), false))?;
            // As much as the window lets in, and no more.
            for _ in 0..3 {
                stream.write_all(&data(&[0x5a; 16_000], false))?;
            }
        }
        Manner::Empty => {
            stream.write_all(&[begin(), headers("/duramen.v1.Data/Read")].concat())?;
            let message = [0x0a, 0x00].repeat(8_000_000 / 2);
            let length = u32::try_from(message.len()).expect("short").to_be_bytes();
            let framed = [&[0], &length[..], &message].concat();
            // It takes what the server's windows let in; the rest is refused.
            for part in framed.chunks(16_000) {
                stream.write_all(&data(part, false))?;
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Manner::Transact => return transact(&mut stream, is_over),
        Manner::Unread | Manner::Sorted => {
            stream.write_all(&[begin(), headers("/duramen.v1.Data/Scan")].concat())?;
            // `collection`, of the scan or of its query, which has an `order_by`.
            let mut request = [&[0x0a, 3], BIG.as_bytes()].concat();
            if matches!(manner, Manner::Sorted) {
                request.extend([&[0x32, 9], &b"text:desc"[..]].concat());
                let length = u8::try_from(request.len()).expect("short");
                request = [&[0x42, length], &request[..]].concat();
            }
            let length = u32::try_from(request.len()).expect("short").to_be_bytes();
            stream.write_all(&data(&[&[0], &length[..], &request].concat(), true))?;
            // Nothing is read.
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(20) && !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(100));
            }
            return Ok(());
        }
    }
    hold(&mut stream, Duration::from_secs(20), is_over).map(drop)
}

/// A transaction that asks for ten documents, again and again.
fn transact(stream: &mut UnixStream, is_over: &AtomicBool) -> std::io::Result<()> {
    stream.write_all(&[begin(), headers("/duramen.v1.Data/Transact")].concat())?;
    // A `begin`, then steps that each get ten documents.
    let key = [&[0x0a, 2, 0x18], &[2_u8][..]].concat();
    let get = within(0x0a, &[within(0x0a, BIG.as_bytes()), within(0x12, &key)].concat());
    let step = within(0x12, &within(0x12, &get).repeat(10));
    let framed = |message: &[u8]| {
        let length = u32::try_from(message.len()).expect("short").to_be_bytes();
        data(&[&[0], &length[..], message].concat(), false)
    };
    let mut sent = framed(&within(0x0a, &[]));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) && !is_over.load(Ordering::Relaxed) {
        stream.write_all(&sent)?;
        sent = framed(&step);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A field of a message, with its tag and its length.
fn within(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![tag];
    let mut length = bytes.len();
    while length >= 0x80 {
        field.push(u8::try_from(length & 0x7f).expect("7 bits") | 0x80);
        length >>= 7;
    }
    field.push(u8::try_from(length).expect("7 bits"));
    field.extend_from_slice(bytes);
    field
}

/// Keeps the connection for a time; whether it was closed, or all is over.
fn hold(stream: &mut UnixStream, time: Duration, is_over: &AtomicBool) -> std::io::Result<bool> {
    let start = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut bytes = [0; 4096];
    while start.elapsed() < time {
        if is_over.load(Ordering::Relaxed) {
            return Ok(true);
        }
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The preface, and settings that let the server send without end.
fn begin() -> Vec<u8> {
    let window = [0, 4, 0x7f, 0xff, 0xff, 0xff];
    let settings = frame(4, 0, 0, &window);
    let update = frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes());
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings, &update].concat()
}

fn headers(path: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "duramen"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut block = Vec::new();
    for (name, value) in fields {
        // Without index and without Huffman's code; all are short.
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend_from_slice(text.as_bytes());
        }
    }
    frame(1, 0x4, 1, &block)
}

fn data(bytes: &[u8], is_last: bool) -> Vec<u8> {
    frame(0, u8::from(is_last), 1, bytes)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
