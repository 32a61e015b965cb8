//! A server that is stopped and started again and again, as for another release, while clients use it by
//! `Remote`. Its listener stays open all the time, as under a service manager. No call may fail.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use duramen::prelude::*;
use duramen::{Origin, doc};
use duramen_client::{Address, Remote, RemoteTransaction};
use duramen_disk::memory::Random;
use duramen_proto::discovery;

use crate::acks::{Ack, Acks};
use crate::client::{COLLECTION, COUNTERS};
use crate::{Wrong, wrong};

/// A server runs at most this long, in milliseconds, once every client was answered by it.
const LIFE_MS_MAX: usize = 500;

/// A server that does not stop, or answers nothing, after this time never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rows of each client: a scan of them takes several messages.
const ROWS: u64 = 400;

const BLOB_BYTES: usize = 200_000;
const FILES: &str = "files";
const LAST: &str = "last";

/// Numbers of such a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Restart {
    #[command(flatten)]
    of: crate::Of,
    #[arg(long, default_value_t = 20)]
    restarts: u64,
    /// Half of them by TCP, half by the socket in the directory
    #[arg(long, default_value_t = 16)]
    clients: u64,
    /// Fail if a call took longer than this
    #[arg(long)]
    longest_ms: Option<u64>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Serialize, Deserialize, Collection)]
#[collection(name = "rows", view(RowByOwner, key = owner, value = times, reduce = (Count, Sum)))]
struct Row {
    #[key]
    owner: u64,
    #[key]
    number: u64,
    times: i64,
    text: String,
}

/// What the clients have in common.
struct Run<'a> {
    args: &'a Restart,
    address: SocketAddr,
    is_over: AtomicBool,
    /// Rounds of each client: a server is stopped once all have gone on.
    rounds: Vec<AtomicU64>,
    acks: Mutex<Acks>,
    took: Mutex<BTreeMap<&'static str, (u64, Duration)>>,
}

/// Restarts the server under its clients, and checks what they were told.
pub(crate) fn run(args: &Restart) -> Result<(), Wrong> {
    let failed = |error: std::io::Error| wrong(format!("no listener: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let run = Run {
        args,
        address: listener.local_addr().map_err(failed)?,
        is_over: AtomicBool::new(false),
        rounds: (0..=args.clients).map(|_| AtomicU64::new(0)).collect(),
        acks: Mutex::default(),
        took: Mutex::default(),
    };
    let mut server = start(args, &listener)?;
    let done = thread::scope(|scope| {
        let clients: Vec<_> = (0..=args.clients)
            .map(|number| {
                scope.spawn({
                    let run = &run;
                    move || run.until_over(number)
                })
            })
            .collect();
        let restarted = restart(&run, &mut server, &listener);
        run.is_over.store(true, Ordering::Relaxed);
        let done = clients.into_iter().map(|client| client.join().expect("it does not panic"));
        done.collect::<Result<(), Wrong>>().and(restarted)
    });
    if let Err(failed) = done.and_then(|()| stop(&mut server)) {
        // It may have ended.
        let _ = crate::killed::end(&mut server);
        return Err(failed);
    }
    run.check()
}

/// A server with the listener.
fn start(args: &Restart, listener: &TcpListener) -> Result<Child, Wrong> {
    let failed = |error: std::io::Error| wrong(format!("the server does not start: {error}"));
    let me = std::env::current_exe().map_err(failed)?;
    let listener = OwnedFd::from(listener.try_clone().map_err(failed)?);
    let mut command = Command::new(me);
    command.arg("serve").arg("--db").arg(&args.of.db).arg("--listener-in-stdin");
    command.stdin(Stdio::from(listener)).spawn().map_err(failed)
}

/// By SIGTERM; it must end by itself, and well.
fn stop(server: &mut Child) -> Result<(), Wrong> {
    let failed = |error: std::io::Error| wrong(format!("the server does not stop: {error}"));
    rustix::process::kill_process(rustix::process::Pid::from_child(server), rustix::process::Signal::TERM)
        .map_err(|error| failed(error.into()))?;
    let begun = Instant::now();
    loop {
        match server.try_wait().map_err(failed)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(wrong(format!("the server ended with {status}"))),
            None if begun.elapsed() > PATIENCE => {
                crate::killed::end(server)?;
                return Err(wrong("the server did not end"));
            }
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn restart(run: &Run<'_>, server: &mut Child, listener: &TcpListener) -> Result<(), Wrong> {
    let mut random = Random::new(run.args.seed);
    for _ in 0..run.args.restarts {
        run.wait_for_all()?;
        thread::sleep(Duration::from_millis(random.below(LIFE_MS_MAX) as u64));
        stop(server)?;
        *server = start(run.args, listener)?;
    }
    run.wait_for_all()
}

impl Run<'_> {
    /// Until every client has been answered once more.
    fn wait_for_all(&self) -> Result<(), Wrong> {
        let now = |round: &AtomicU64| round.load(Ordering::Relaxed);
        let before: Vec<u64> = self.rounds.iter().map(now).collect();
        let begun = Instant::now();
        while self.rounds.iter().map(now).zip(&before).any(|(now, before)| now == *before) {
            if self.is_over.load(Ordering::Relaxed) {
                return Err(wrong("a client has ended"));
            }
            if begun.elapsed() > PATIENCE {
                return Err(wrong("a client gets no answer"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// A client, until all is over. The last one is a consumer.
    fn until_over(&self, number: u64) -> Result<(), Wrong> {
        let ended = match number == self.args.clients {
            true => self.consume(),
            false => self.call(number),
        };
        // Without a client there is nothing to be seen.
        self.is_over.store(true, Ordering::Relaxed);
        ended.map_err(|Wrong(exit, what)| Wrong(exit, format!("client {number}: {what}")))
    }

    fn next_round(&self, number: u64) -> bool {
        let place = usize::try_from(number).unwrap_or(0);
        self.rounds[place].fetch_add(1, Ordering::Relaxed);
        !self.is_over.load(Ordering::Relaxed)
    }

    /// The only errors that are awaited are those of the first connection.
    fn connect(&self, number: u64) -> Result<Remote, Wrong> {
        let directory = Address::Directory(self.args.of.db.clone());
        let begun = Instant::now();
        loop {
            let token = std::fs::read_to_string(self.args.of.db.join(discovery::TOKEN)).ok();
            let address = match number % 2 {
                0 => Address::Tcp {
                    host: self.address.ip().to_string(),
                    port: self.address.port(),
                    token,
                    tls: None,
                },
                _ => directory.clone(),
            };
            match duramen_client::Client::connect(&address) {
                Ok(client) => return Ok(Remote::from(client)),
                Err(error) if begun.elapsed() > PATIENCE => return Err(error.into()),
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Does something, and notes how long it took.
    fn timed<T>(&self, what: &'static str, call: impl FnOnce() -> Result<T>) -> Result<T, Wrong> {
        let begun = Instant::now();
        let done = call().map_err(|error| wrong(format!("{what}: {error:?}")))?;
        let (time, mut took) = (begun.elapsed(), self.took.lock().unwrap_or_else(PoisonError::into_inner));
        let (count, longest) = took.entry(what).or_default();
        *count += 1;
        *longest = time.max(*longest);
        Ok(done)
    }

    fn call(&self, number: u64) -> Result<(), Wrong> {
        let remote = self.connect(number)?;
        // Every other one by the socket, and every other one by TCP, awaits its transactions.
        let awaits = (number / 2 % 2 == 1).then(|| remote.clone().into_async());
        let mut random = Random::new(self.args.seed ^ number << 32);
        self.timed("transaction", || fill(&remote, number))?;
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.map_err(|error| wrong(error.to_string()))?;
        let (mut acknowledged, mut last) = (0, None);
        while self.next_round(number) {
            match random.below(6) {
                0 | 1 => {
                    let mut ids = Random::new(random.bits());
                    let run = move |tx: &mut RemoteTransaction| count(tx, number, &mut ids);
                    let ack = match &awaits {
                        None => self.timed("transaction", || remote.transact(run))?,
                        Some(remote) => {
                            self.timed("awaited transaction", || runtime.block_on(remote.transact(run)))?
                        }
                    };
                    if ack.number != acknowledged {
                        return Err(wrong(format!("{ack}: {acknowledged} was to come")));
                    }
                    acknowledged += 1;
                    self.acks.lock().unwrap_or_else(PoisonError::into_inner).add(ack)?;
                }
                2 => {
                    let value = i64::try_from(random.below(1 << 30)).unwrap_or(0);
                    self.timed("put", || remote.kv(LAST).put(number, &value))?;
                    last = Some(value);
                }
                3 => {
                    let found = self.timed("get", || remote.kv(LAST).get::<i64>(number))?;
                    if found != last {
                        return Err(wrong(format!("{found:?} was found, {last:?} was put")));
                    }
                }
                4 => self.timed("scan", || scan(&remote, number)).and_then(std::convert::identity)?,
                _ => self.timed("blob", || blob(&remote, number)).and_then(std::convert::identity)?,
            }
        }
        Ok(())
    }

    /// Follows what the others commit.
    fn consume(&self) -> Result<(), Wrong> {
        let remote = self.connect(0)?;
        let mut consumer = self.timed("consumer", || remote.consumer("follower", true))?;
        while self.next_round(self.args.clients) {
            // It waits for changes: how long says nothing of the server.
            let handled = consumer.step(Duration::from_millis(100), |tx, changes| {
                let count = changes.iter().filter(|change| is_count(&change.origin)).count();
                tx.kv("followed").increment("count", i64::try_from(count).unwrap_or(0)).map(drop)
            });
            handled.map_err(|error| wrong(format!("consumer: {error:?}")))?;
        }
        Ok(())
    }

    fn check(self) -> Result<(), Wrong> {
        let db = crate::open(&self.args.of.db)?;
        let acks = self.acks.into_inner().unwrap_or_else(PoisonError::into_inner);
        let present = acks.check(&db)?;
        let took = self.took.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut told = format!(
            "seed {}: {} restarts under {} clients",
            self.args.seed, self.args.restarts, self.args.clients
        );
        let _ = write!(
            told,
            ": no error; {} transactions acknowledged, {present} present; longest",
            acks.count()
        );
        for (what, (count, longest)) in &took {
            let _ = write!(told, ", {what} {:.2} s of {count}", longest.as_secs_f64());
        }
        println!("{told}");
        let longest = took.values().map(|(_, longest)| *longest).max().unwrap_or_default();
        match self.args.longest_ms {
            Some(most) if longest > Duration::from_millis(most) => Err(wrong("a call took too long")),
            _ if acks.count() == 0 => Err(wrong("nothing was acknowledged: nothing was checked")),
            _ => Ok(()),
        }
    }
}

/// The rows of a client.
fn fill(remote: &Remote, owner: u64) -> Result<()> {
    remote.transact(|tx| {
        (0..ROWS).try_for_each(|number| tx.put(&Row { owner, number, times: 0, text: "x".repeat(1_000) }))
    })
}

/// A document and a counter. The id is drawn by each run of the closure: what is told is of the run that was
/// committed.
fn count(tx: &mut RemoteTransaction, client: u64, random: &mut Random) -> Result<Ack> {
    let id = format!("{:016x}", random.bits());
    let counter = tx.kv(COUNTERS).get::<i64>(client)?.unwrap_or(0);
    tx.documents(COLLECTION).insert(&doc! { "client": client, "number": counter, "id": id.as_str() })?;
    tx.kv(COUNTERS).put(client, &(counter + 1))?;
    tx.modify::<Row>((client, random.bits() % ROWS), |row| {
        row.times += 1;
        Ok(())
    })?;
    Ok(Ack { client, number: u64::try_from(counter).unwrap_or(u64::MAX), id })
}

/// Whether a change is a document of [`count`].
fn is_count(origin: &Origin) -> bool {
    matches!(origin, Origin::Collection(name) if name == COLLECTION)
}

/// All rows of a client, whole; and their number by the view.
fn scan(remote: &Remote, owner: u64) -> Result<Result<(), Wrong>> {
    let rows = remote.collection::<Row>().prefix(owner).to_vec()?;
    let (count, _) = remote.view::<RowByOwner>().key(owner).reduce()?;
    Ok(if rows.len() as u64 == ROWS && count == ROWS {
        Ok(())
    } else {
        Err(wrong(format!("{} rows were found, and {count} counted", rows.len())))
    })
}

/// A blob, in and out.
fn blob(remote: &Remote, owner: u64) -> Result<Result<(), Wrong>> {
    let bytes = vec![u8::try_from(owner % 251).unwrap_or(0); BLOB_BYTES];
    remote.blobs(FILES).put(owner, &bytes[..])?;
    let mut read = Vec::new();
    let mut reader =
        remote.blobs(FILES).get(owner)?.ok_or_else(|| Error::invalid("the blob is not there"))?;
    reader.read_to_end(&mut read).map_err(Error::from_io)?;
    Ok(if read == bytes { Ok(()) } else { Err(wrong("a blob is not what was put")) })
}
