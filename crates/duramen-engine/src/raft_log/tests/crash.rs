//! Power cuts at every operation of random runs, also after openings: what was acknowledged is there, and the
//! log and the vote are together as they once were.

use duramen_disk::memory::CrashChoice;

use super::*;

/// A state that the log may be found in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    purged: u64,
    entries: Vec<Entry>,
    vote: Option<Vote>,
}

/// A running log, and every state that it was asked to take on.
struct World {
    disk: MemDisk,
    log: RaftLog,
    /// In the order of the queue. An append leads through one state for each entry.
    states: Vec<State>,
    /// From which operation of the disk on which state was asked for last, and which was acknowledged last.
    asked: Vec<(usize, usize)>,
    acknowledged: Vec<(usize, usize)>,
    decided: u64,
    term: u64,
    salt: u64,
}

/// How often the interesting cases occurred: a search without them proves nothing.
#[derive(Debug, Default)]
struct Met {
    images: u64,
    images_wanted: u64,
    unacknowledged_kept: u64,
    unacknowledged_lost: u64,
    cuts_undone: u64,
    cuts_done: u64,
    votes_undone: u64,
    purges_undone: u64,
    deep: u64,
}

impl World {
    fn of(disk: MemDisk, log: RaftLog, state: State, decided: u64, salt: u64) -> World {
        let term = state.entries.last().map_or(1, |last| last.id.term);
        let (states, asked, acknowledged) = (vec![state], vec![(0, 0)], vec![(0, 0)]);
        World { disk, log, states, asked, acknowledged, decided, term, salt }
    }

    fn state(&self) -> &State {
        self.states.last().unwrap()
    }

    fn last(&self) -> u64 {
        self.log.end().id.seq.0
    }

    /// Asks for some things at once, then carries them out.
    fn step(&mut self, draw: &mut Draw) {
        for _ in 0..=draw.below(3) {
            match draw.below(12) {
                0..=5 => self.append(1 + draw.below(4)),
                6 | 7 => self.vote(draw.below(3)),
                8 => self.cut(draw),
                9 => self.purge(draw),
                _ => self.decide(draw),
            }
        }
        self.disk.advance_clock(draw.below(3) * 60_000_000);
        self.asked.push((self.disk.recorded_len(), self.states.len() - 1));
        self.log.step().unwrap();
        self.acknowledged.push((self.disk.recorded_len(), self.states.len() - 1));
    }

    fn append(&mut self, count: u64) {
        let first = self.last() + 1;
        self.salt += 1;
        let entries: Vec<Entry> =
            (first..first + count).map(|seq| entry(seq, self.term, self.salt)).collect();
        for entry in &entries {
            let mut state = self.state().clone();
            state.entries.push(entry.clone());
            self.states.push(state);
        }
        self.log.append(entries, Calls::default().done()).unwrap();
    }

    fn vote(&mut self, node: u64) {
        self.term += 1;
        let vote = Vote { term: self.term, node, leads: false };
        self.states.push(State { vote: Some(vote), ..self.state().clone() });
        self.log.save_vote(vote, Calls::default().done()).unwrap();
    }

    fn cut(&mut self, draw: &mut Draw) {
        let kept = self.last() - draw.below(self.last() - self.decided + 1);
        let mut state = self.state().clone();
        state.entries.retain(|entry| entry.id.seq.0 <= kept);
        self.states.push(state);
        self.log.cut_after(CommitSeq(kept), Calls::default().done()).unwrap();
        self.term += 1;
    }

    fn decide(&mut self, draw: &mut Draw) {
        self.decided += draw.below(self.last() - self.decided + 1);
        self.log.decide(CommitSeq(self.decided)).unwrap();
    }

    fn purge(&mut self, draw: &mut Draw) {
        let bound = self.decided.min(self.log.synced().0);
        let purged = self.state().purged + draw.below(bound.saturating_sub(self.state().purged) + 1);
        let mut state = self.state().clone();
        state.entries.retain(|entry| entry.id.seq.0 > purged);
        self.states.push(State { purged, ..state });
        self.log.purge(CommitSeq(purged), Calls::default().done()).unwrap();
    }
}

fn choices(draw: &mut Draw, pending: usize) -> Vec<CrashChoice> {
    let mut choices = vec![CrashChoice::None, CrashChoice::All];
    if pending > 0 {
        let index = draw.below(pending as u64) as usize;
        choices.extend([CrashChoice::Prefix(index), CrashChoice::AllBut(index)]);
        choices.push(CrashChoice::Torn { index: pending - 1, seed: draw.next() });
        choices.extend((0..2).map(|_| CrashChoice::Random { seed: draw.next() }));
    }
    choices
}

fn at(list: &[(usize, usize)], operation: usize) -> usize {
    list.iter().rfind(|(from, _)| *from <= operation).unwrap().1
}

fn search(world: &World, draw: &mut Draw, met: &mut Met, depth: u32) {
    let trace = world.disk.trace();
    let mut cursor = trace.cursor();
    loop {
        for choice in choices(draw, cursor.pending_len()) {
            let label = format!("depth {depth}, cut at {} of {}, {choice:?}", cursor.at(), trace.len());
            let image = cursor.image(&choice);
            met.images += 1;
            let (state, decided) = check(&image, world, cursor.at(), met, &label);
            if depth < 3 && met.images < met.images_wanted && draw.below(60) == 0 {
                met.deep += 1;
                let next = go_on(&image, world, state, decided, draw, &label);
                search(&next, draw, met, depth + 1);
            }
        }
        if !cursor.advance() {
            return;
        }
    }
}

/// Opens a copy of the image: it is in a state between what was acknowledged and what was asked for.
fn check(image: &MemDisk, world: &World, operation: usize, met: &mut Met, label: &str) -> (State, u64) {
    let (log, found) = open(&image.deep_clone()).unwrap_or_else(|error| panic!("{label}: {error}"));
    let state = State { purged: found.purged.id.seq.0, entries: all(&log), vote: found.vote };
    let (least, most) = (at(&world.acknowledged, operation), at(&world.asked, operation));
    let index = (least..=most).find(|index| world.states[*index] == state);
    let Some(index) = index else {
        let last = |state: &State| state.entries.last().map(|entry| (entry.id, entry.ordered.lineage));
        let wanted: Vec<_> = world.states[least..=most]
            .iter()
            .map(|state| (state.purged, last(state), state.entries.len(), state.vote))
            .collect();
        let shown = (state.purged, last(&state), state.entries.len(), state.vote);
        panic!("{label}: found {shown:?}, want one of {wanted:?}");
    };
    assert!(found.decided.0 <= world.decided, "{label}: {} is not decided", found.decided);
    let end = state.entries.last().map_or(found.purged.id.seq.0, |last| last.id.seq.0);
    assert!(found.decided.0 <= end, "{label}: the log has what it calls decided");
    met.unacknowledged_kept += u64::from(index > least);
    met.unacknowledged_lost += u64::from(index < most);
    for (before, after) in world.states[least..=most].iter().zip(&world.states[least + 1..=most]) {
        let is_cut = after.entries.len() < before.entries.len() && after.purged == before.purged;
        met.cuts_undone += u64::from(is_cut && *before == state);
        met.cuts_done += u64::from(is_cut && *after == state);
        met.votes_undone += u64::from(before.vote != after.vote && *before == state);
        met.purges_undone += u64::from(before.purged != after.purged && *before == state);
    }
    (state, found.decided.0)
}

/// Goes on from an image. What is known to be decided may be less than before.
fn go_on(image: &MemDisk, world: &World, state: State, decided: u64, draw: &mut Draw, label: &str) -> World {
    let disk = image.deep_clone();
    disk.record();
    let (log, _) = open(&disk).unwrap_or_else(|error| panic!("{label}: {error}"));
    let mut next = World::of(disk, log, state, decided, world.salt + 1000);
    next.term = next.term.max(world.term);
    for _ in 0..2 + draw.below(8) {
        next.step(draw);
    }
    next
}

fn run(seed: u64, steps: u32) -> Met {
    println!("DURAMEN_SEED={seed}");
    let mut draw = Draw(Random::new(seed));
    let images_wanted = if std::env::var_os("DURAMEN_LONG").is_some() { 200_000 } else { 6_000 };
    let mut met = Met { images_wanted, ..Met::default() };
    let disk = disk(draw.next());
    let log = created(&disk);
    disk.record();
    let state = State { purged: BEGINS.id.seq.0, entries: Vec::new(), vote: None };
    let mut world = World::of(disk, log, state, BEGINS.id.seq.0, 0);
    for _ in 0..steps {
        world.step(&mut draw);
    }
    search(&world, &mut draw, &mut met, 0);
    met
}

#[test]
fn every_cut_leaves_what_was_acknowledged_and_a_vote_that_belongs_to_it() {
    let met = run(seed(31), 40);
    println!("{met:?}");
    for (name, count) in [
        ("unacknowledged states kept", met.unacknowledged_kept),
        ("unacknowledged states lost", met.unacknowledged_lost),
        ("cuts undone", met.cuts_undone),
        ("cuts done", met.cuts_done),
        ("votes undone", met.votes_undone),
        ("purges undone", met.purges_undone),
        ("openings that went on", met.deep),
    ] {
        assert!(count > 0, "the search met no {name}: {met:?}");
    }
}

/// A power cut while a log is created leaves a log that can be created again, or a complete one.
#[test]
fn creation_survives_a_cut_at_any_operation() {
    let disk = disk(32);
    disk.record();
    place(&disk).create(IDENT, None, BEGINS).unwrap();
    let trace = disk.stop_recording();
    let mut draw = Draw(Random::new(32));
    let mut cursor = trace.cursor();
    loop {
        for choice in choices(&mut draw, cursor.pending_len()) {
            let image = cursor.image(&choice);
            let place = place(&image);
            if !place.is_there().unwrap() {
                assert!(cursor.at() < trace.len(), "a complete creation is there");
                place.create(IDENT, None, BEGINS).unwrap();
            }
            let (log, found) = place.open().unwrap();
            assert_eq!((found.purged, found.last, found.vote), (BEGINS, BEGINS.id, None));
            append(&log, entries(101, 102, 1));
        }
        if !cursor.advance() {
            return;
        }
    }
}
