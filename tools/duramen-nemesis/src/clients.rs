//! Clients of the cluster: writers, which follow the leader as the library does, and readers, each of one
//! node. What they are answered goes into the history, but for reads of states of some age (`ages`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use duramen::error::{Code, Error, ErrorKind};
use duramen::prelude::*;
use duramen::tuple::Element;
use duramen_client::Remote;
use duramen_disk::memory::Random;
use duramen_proto::v1;

use crate::ages::{self, AGES_MS, Counts};
use crate::cluster::{Cluster, LOOK};
use crate::content::Content;
use crate::history::{End, History, Part};
use crate::machine;

/// Lists that transactions meet on.
const LISTS: u64 = 5;
/// After so many appends other lists are used, so that lists stay short.
const APPENDS_OF_LISTS: u64 = 120;
/// Writers; there are two readers for each machine besides: of the newest state, and of states of some age.
pub(crate) const WRITERS: u64 = 4;
/// Once nothing is wrong any more, writes are acknowledged within this time.
const GOES_ON_WITHIN: Duration = Duration::from_secs(30);
/// A client rests at most so long between two transactions, in milliseconds.
const REST_MS_MAX: usize = 25;
/// Processes of the history: a client is another one after a transaction whose end it does not know.
const PROCESSES: u64 = 1000;
/// Those of clients that go on with a history of others.
const LATER_PROCESSES: u64 = PROCESSES / 2;
pub(crate) const COUNTS: &str = "counts";
const ONE_READ: &str = "read of one node";
const AGED_READ: &str = "read of some age";

/// A list that transactions append their ids to.
#[derive(Debug, Serialize, Deserialize, Collection)]
pub(crate) struct List {
    #[key]
    pub(crate) id: u64,
    pub(crate) ids: Vec<u64>,
}

/// Each transaction that appends inserts one, too.
#[derive(Debug, Serialize, Deserialize, Collection)]
#[collection(view(ByClient, key = client, value = amount, reduce = (Count, Sum)))]
pub(crate) struct Entry {
    #[key]
    pub(crate) id: u64,
    pub(crate) client: u64,
    pub(crate) amount: i64,
}

/// What all clients share.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) history: History,
    pub(crate) is_over: AtomicBool,
    /// Clients begin nothing.
    pub(crate) rests: AtomicBool,
    /// A file of a node has a flipped bit: its errors are as they should be.
    pub(crate) may_find_damage: AtomicBool,
    /// A disk is full: what takes room is refused.
    pub(crate) may_be_full: AtomicBool,
    machines: usize,
    /// Of the history. Those before were of clients whose power went.
    first_process: u64,
    /// Writers count, too: what they were told is in no history.
    has_counts: bool,
    ids: AtomicU64,
    /// What writers were told of their counts.
    told: Counts,
    seen: Mutex<Seen>,
}

/// What was seen.
#[derive(Debug)]
struct Seen {
    wrong: Vec<String>,
    /// By code, and what was called.
    errors: BTreeMap<(String, &'static str), u64>,
    /// What each client's count is, as far as it is known.
    counts: BTreeMap<u64, i64>,
    reads: u64,
    /// Of states of some age.
    aged: u64,
    writes: u64,
    last_write: Instant,
    longest_pause: Duration,
}

impl Load {
    pub(crate) fn new(machines: usize) -> Load {
        let seen = Seen {
            wrong: Vec::new(),
            errors: BTreeMap::new(),
            counts: BTreeMap::new(),
            reads: 0,
            aged: 0,
            writes: 0,
            last_write: Instant::now(),
            longest_pause: Duration::ZERO,
        };
        Load {
            history: History::default(),
            is_over: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            may_find_damage: AtomicBool::new(false),
            may_be_full: AtomicBool::new(false),
            machines,
            first_process: 0,
            has_counts: true,
            ids: AtomicU64::new(1),
            told: Counts::default(),
            seen: Mutex::new(seen),
        }
    }

    /// One whose history is all that is told of it: nothing is counted.
    pub(crate) fn keeping(machines: usize, history: History) -> Load {
        Load { history, has_counts: false, ..Load::new(machines) }
    }

    /// One that goes on after the last id of a history.
    pub(crate) fn after(machines: usize, history: History, last_id: u64) -> Load {
        let (ids, first_process) = (AtomicU64::new(last_id + 1), LATER_PROCESSES);
        Load { ids, first_process, ..Load::keeping(machines, history) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_wrong(&self, what: String) {
        self.seen().wrong.push(what);
    }

    pub(crate) fn wrong(&self) -> Vec<String> {
        self.seen().wrong.clone()
    }

    /// Compares the counts that clients were told with those that are there.
    pub(crate) fn lost_counts(&self, content: &Content) -> Vec<String> {
        let seen = self.seen();
        let there = |client: u64| content.counts.get(usize::try_from(client).ok()?).copied().flatten();
        let is_other = |(client, told): &(&u64, &i64)| there(**client) != Some(**told);
        let lost = seen.counts.iter().filter(is_other);
        lost.map(|(client, told)| format!("client {client} was told {told}; {:?} is there", there(*client)))
            .collect()
    }

    /// How many clients there are.
    pub(crate) fn clients(&self) -> u64 {
        self.readers_of_ages() + if self.has_counts { self.machines as u64 } else { 0 }
    }

    /// The number of the first client that reads states of some age.
    fn readers_of_ages(&self) -> u64 {
        WRITERS + self.machines as u64
    }

    /// Lets clients run beside something.
    pub(crate) fn beside<T>(&self, seed: u64, run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        std::thread::scope(|scope| {
            for number in 0..self.clients() {
                let client = Client::new(self, number, seed);
                scope.spawn(move || match number {
                    number if number < WRITERS => client.write(),
                    number if number < self.readers_of_ages() => client.read(Client::read_once),
                    _ => client.read(Client::read_of_an_age),
                });
            }
            let done = run();
            self.is_over.store(true, Ordering::Relaxed);
            done
        })
    }

    /// Waits until a write is acknowledged that was begun after this.
    pub(crate) fn until_writes(&self, cluster: &mut Cluster) -> Result<(), String> {
        let (wanted, until) = (self.writes() + WRITERS + 1, Instant::now() + GOES_ON_WITHIN);
        while self.writes() < wanted {
            cluster.none_has_ended()?;
            if Instant::now() > until {
                let status = cluster.status_of_leader().map(|(_, status)| status.to_string());
                return Err(format!("nothing is written for {GOES_ON_WITHIN:?}: {status:?}"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    pub(crate) fn writes(&self) -> u64 {
        self.seen().writes
    }

    pub(crate) fn reads(&self) -> u64 {
        self.seen().reads
    }

    /// Reads of states of some age that were answered.
    pub(crate) fn aged(&self) -> u64 {
        self.seen().aged
    }

    /// Begins to look for the longest pause.
    pub(crate) fn watch_pauses(&self) {
        self.seen().longest_pause = Duration::ZERO;
    }

    /// The longest time without an acknowledged write since then.
    pub(crate) fn longest_pause(&self) -> Duration {
        self.seen().longest_pause
    }

    pub(crate) fn errors(&self) -> Vec<String> {
        let seen = self.seen();
        seen.errors.iter().map(|((code, call), times)| format!("{times} {code} of {call}")).collect()
    }

    fn has_written(&self) {
        let mut seen = self.seen();
        seen.writes += 1;
        seen.longest_pause = seen.longest_pause.max(seen.last_write.elapsed());
        seen.last_write = Instant::now();
    }

    /// What an error says about the transaction that it is of. No fault lasts so long that a call of the
    /// library should end with one, but for reads that are not repeated.
    fn end(&self, call: &'static str, error: &Error) -> End {
        *self.seen().errors.entry((error.code().to_string(), call)).or_default() += 1;
        let (end, is_excused) = match error.kind() {
            ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::Expired => {
                (End::Never, call == ONE_READ || call == AGED_READ)
            }
            ErrorKind::Full => (End::Never, self.may_be_full.load(Ordering::Relaxed)),
            ErrorKind::Corrupt => (End::Unknown, self.may_find_damage.load(Ordering::Relaxed)),
            _ => (End::Unknown, false),
        };
        if !is_excused {
            self.is_wrong(format!("{call}: {error:?}"));
        }
        end
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Lists of now, or of a little while ago.
    fn some_lists(&self, random: &mut Random) -> Vec<u64> {
        let age = self.ids.load(Ordering::Relaxed) / APPENDS_OF_LISTS;
        let age = if random.chance(1, 8) { age.saturating_sub(1) } else { age };
        let mut lists: Vec<u64> = (0..LISTS).map(|list| age * LISTS + list).collect();
        random.shuffle(&mut lists);
        lists.truncate(1 + random.below(3));
        lists
    }

    /// Connects to a machine, in time.
    fn connect(&self, machine: usize) -> Option<Remote> {
        while self.goes_on() {
            match Remote::connect(&machine::serves(machine).to_string()) {
                Ok(remote) => return Some(remote),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        None
    }
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    load: &'a Load,
    number: u64,
    /// Its process in the history.
    process: u64,
    random: Random,
}

impl<'a> Client<'a> {
    pub(crate) fn new(load: &'a Load, number: u64, seed: u64) -> Client<'a> {
        let random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(number));
        Client { load, number, process: load.first_process + number, random }
    }

    fn machine(&self) -> usize {
        usize::try_from(self.number).expect("few clients") % self.load.machines
    }

    fn rest(&mut self) {
        std::thread::sleep(Duration::from_millis(self.random.below(REST_MS_MAX) as u64));
        while self.load.rests.load(Ordering::Relaxed) && self.load.goes_on() {
            std::thread::sleep(LOOK);
        }
    }

    fn ends(&mut self, parts: &[Part], end: End) {
        self.load.history.ends(self.process, parts, end);
        if end == End::Unknown {
            self.process += PROCESSES;
        }
    }

    /// Writes until the load is over.
    pub(crate) fn write(mut self) {
        let Some(remote) = self.load.connect(self.machine()) else { return };
        let mut count = Some(0);
        while self.load.goes_on() {
            match self.random.below(8) {
                0 if self.load.has_counts => self.count(&remote, &mut count),
                1 => self.look(&remote),
                _ => self.append(&remote),
            }
            self.rest();
        }
    }

    /// Reads at one machine until the load is over, by calls that say whether they were answered.
    pub(crate) fn read(mut self, once: fn(&mut Self, &Remote) -> bool) {
        while let Some(remote) = self.load.connect(self.machine()) {
            // The library goes elsewhere after an error; this client does not.
            while self.load.goes_on() && once(&mut self, &remote) {
                self.rest();
            }
        }
    }

    /// A transaction that reads some lists and appends to one or more of them.
    fn append(&mut self, remote: &Remote) {
        let id = self.load.ids.fetch_add(1, Ordering::Relaxed);
        let mut lists = self.load.some_lists(&mut self.random);
        let appended = lists.split_off(self.random.below(lists.len()));
        let asked: Vec<Part> = lists
            .iter()
            .map(|list| Part::Read(*list, None))
            .chain(appended.iter().flat_map(|list| [Part::Read(*list, None), Part::Append(*list, id)]))
            .collect();
        self.load.history.begins(self.process, &asked);
        let entry = Entry { id, client: self.number, amount: 1 };
        let done = remote.transact(|tx| {
            let mut parts = Vec::new();
            for list in &lists {
                parts.push(Part::Read(*list, Some(found(tx.get::<List>(*list)?))));
            }
            for list in &appended {
                let mut ids = found(tx.get::<List>(*list)?);
                parts.extend([Part::Read(*list, Some(ids.clone())), Part::Append(*list, id)]);
                ids.push(id);
                tx.put(&List { id: *list, ids })?;
            }
            tx.insert(&entry)?;
            Ok(parts)
        });
        match done {
            Ok(parts) => {
                self.ends(&parts, End::Happened);
                self.load.has_written();
            }
            Err(error) => {
                let end = self.load.end("transact", &error);
                self.ends(&asked, end);
            }
        }
    }

    /// A transaction that only reads.
    fn look(&mut self, remote: &Remote) {
        let lists = self.load.some_lists(&mut self.random);
        self.reads(&lists, "transact, read-only", || {
            remote.transact(|tx| {
                lists.iter().map(|list| Ok(found(tx.get::<List>(*list)?))).collect::<Result<Vec<_>>>()
            })
        });
    }

    /// A state of one machine, in one call that is not repeated. Returns whether it was answered.
    fn read_once(&mut self, remote: &Remote) -> bool {
        let lists = self.load.some_lists(&mut self.random);
        self.reads(&lists, ONE_READ, || lists_of(remote, &lists))
    }

    /// The count of a writer at one machine, in a state of some age, in one call that is not repeated.
    /// Returns whether it was answered.
    fn read_of_an_age(&mut self, remote: &Remote) -> bool {
        let age_ms = *self.random.pick(&AGES_MS);
        let (writer, age) = (self.random.bits() % WRITERS, Duration::from_millis(age_ms));
        let least = self.load.told.before(writer, age);
        match ages::count_of(remote, COUNTS, writer, age) {
            Ok(count) => {
                if count < least {
                    self.load.is_wrong(format!(
                        "machine {} tells client {writer}'s count as {count}, and {age_ms} ms before it was {least}",
                        self.machine() + 1
                    ));
                }
                self.load.seen().aged += 1;
                true
            }
            Err(error) if error.code() == Code::NoSuchTree && least == 0 => true,
            Err(error) => {
                let _ = self.load.end(AGED_READ, &error);
                false
            }
        }
    }

    fn reads(
        &mut self,
        lists: &[u64],
        call: &'static str,
        read: impl FnOnce() -> Result<Vec<Vec<u64>>>,
    ) -> bool {
        let asked: Vec<Part> = lists.iter().map(|list| Part::Read(*list, None)).collect();
        self.load.history.begins(self.process, &asked);
        match read() {
            Ok(answers) => {
                let parts = lists.iter().zip(answers).map(|(list, ids)| Part::Read(*list, Some(ids)));
                self.ends(&parts.collect::<Vec<_>>(), End::Happened);
                self.load.seen().reads += 1;
                true
            }
            Err(error) => {
                // What only reads has changed nothing, whatever became of it.
                let _ = self.load.end(call, &error);
                self.ends(&asked, End::Never);
                false
            }
        }
    }

    /// Adds one to this client's count, whose value is known unless an end was unknown.
    fn count(&mut self, remote: &Remote, count: &mut Option<i64>) {
        match remote.kv(COUNTS).increment(self.number, 1) {
            Ok(now) => {
                if count.is_some_and(|before| now != before + 1) {
                    let what = format!("client {}: {count:?} and one is {now}", self.number);
                    self.load.is_wrong(what);
                }
                *count = Some(now);
                self.load.seen().counts.insert(self.number, now);
                self.load.told.is_told(self.number, now);
                self.load.has_written();
            }
            Err(error) => {
                if self.load.end("increment", &error) == End::Unknown {
                    *count = None;
                    self.load.seen().counts.remove(&self.number);
                }
            }
        }
    }
}

/// Lists as they are in one state of the node that is connected.
fn lists_of(remote: &Remote, lists: &[u64]) -> Result<Vec<Vec<u64>>> {
    let get = |list: &u64| {
        let key = Some(duramen_proto::key::of(&[Element::Int((*list).into())]));
        let kind = v1::read::Kind::Get(v1::DocumentKey { collection: "list".to_owned(), key });
        v1::Read { kind: Some(kind) }
    };
    let reads = lists.iter().map(get).collect();
    let form = v1::DocumentForm::Json.into();
    let reply = remote.client().read(v1::ReadRequest { reads, form, ..v1::ReadRequest::default() });
    let results = match reply {
        // Nothing was written yet.
        Err(error) if error.code() == Code::NoSuchTree => return Ok(vec![Vec::new(); lists.len()]),
        reply => reply?.results,
    };
    let ids = |result: v1::ReadResult| match result.kind {
        Some(v1::read_result::Kind::Found(v1::Found { document: None })) => Ok(Vec::new()),
        Some(v1::read_result::Kind::Found(v1::Found {
            document: Some(v1::Document { form: Some(v1::document::Form::Json(json)) }),
        })) => serde_json::from_str::<List>(&json)
            .map(|list| list.ids)
            .map_err(|why| Error::invalid(format!("a list is no list: {why}: {json}"))),
        other => Err(Error::invalid(format!("an answer to something else: {other:?}"))),
    };
    results.into_iter().map(ids).collect()
}

fn found(list: Option<List>) -> Vec<u64> {
    list.map(|list| list.ids).unwrap_or_default()
}
