//! What a product search has covered: cuts, the events they fell into, transactions lost and kept.

use std::fmt;
use std::time::Duration;

use super::life::Event;
use super::tally::Tally;
use crate::kind_counts::KindCounts;
use crate::search::kinds::Kind;

/// Figures of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Lives.
    pub seeds: u64,
    /// The seed to begin the next search with.
    pub next_seed: u64,
    /// Operations of their disks.
    pub operations: u64,
    /// First cuts: distinct images, each opened, compared, used and cut again.
    pub cuts: u64,
    /// Second cuts: distinct images that those left.
    pub second_cuts: u64,
    /// Cuts after which a commit that had begun was gone.
    pub lost: u64,
    /// Cuts after which a commit was there that was not promised.
    pub kept: u64,
    /// Distinct cuts of each kind of choice, in the order of [`Kind::ALL`].
    pub kinds: [u64; Kind::ALL.len()],
    /// Events of all lives that did something, in the order of [`Event::ALL`].
    pub events: [u64; Event::ALL.len()],
    /// Cuts into each kind of event, where it did something.
    pub cut_into: [u64; Event::ALL.len()],
    /// Figures on what was compared and done.
    pub tally: Tally,
    /// Time taken.
    pub elapsed: Duration,
}

impl Report {
    /// Distinct images in all.
    #[must_use]
    pub fn distinct(&self) -> u64 {
        self.cuts + self.second_cuts
    }

    /// Counts a first cut.
    pub fn cut(&mut self, kind: Kind, event: Option<&str>) {
        self.cuts += 1;
        self.kinds[kind as usize] += 1;
        if let Some(event) = Event::ALL.iter().find(|known| event == Some(known.name())) {
            self.cut_into[*event as usize] += 1;
        }
    }

    /// Counts a second cut.
    pub fn second_cut(&mut self, kind: Kind) {
        self.second_cuts += 1;
        self.kinds[kind as usize] += 1;
    }

    /// What a search must have met.
    #[must_use]
    pub fn counts(&self) -> KindCounts {
        let mut counts = KindCounts::default();
        let cut_into = self.cut_into.iter().zip(Event::ALL);
        counts.extend(cut_into.map(|(count, event)| (*count, format!("a cut into: {}", event.name()))));
        counts.extend(self.kinds.iter().zip(Kind::ALL).map(|(count, kind)| (*count, kind.name())));
        counts.extend([
            (self.lost, "an unacknowledged commit that was lost"),
            (self.kept, "an unacknowledged commit that was kept"),
        ]);
        counts.extend(self.tally.counts());
        counts
    }

    /// Adds another's figures.
    pub fn add(&mut self, other: &Report) {
        self.seeds += other.seeds;
        self.operations += other.operations;
        self.cuts += other.cuts;
        self.second_cuts += other.second_cuts;
        self.lost += other.lost;
        self.kept += other.kept;
        self.tally.add(&other.tally);
        let mine = self.events.iter_mut().chain(&mut self.cut_into).chain(&mut self.kinds);
        for (mine, theirs) in mine.zip(other.events.iter().chain(&other.cut_into).chain(&other.kinds)) {
            *mine += theirs;
        }
    }

    /// One line for programs.
    #[must_use]
    pub fn figures(&self) -> String {
        format!(
            "figures: cuts={} first={} second={} seeds={} next_seed={} lost={} kept={}",
            self.distinct(),
            self.cuts,
            self.second_cuts,
            self.seeds,
            self.next_seed,
            self.lost,
            self.kept
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>8} lives, {} operations", self.seeds, self.operations)?;
        let (distinct, seconds) = (self.distinct(), self.elapsed.as_secs_f64());
        writeln!(f, "{distinct:>8} distinct cuts: {} first, {} second", self.cuts, self.second_cuts)?;
        if seconds > 0.0 {
            writeln!(f, "{:>8.0} distinct cuts a minute, {seconds:.1} s", distinct as f64 / seconds * 60.0)?;
        }
        writeln!(f, "{:>8} lost an unacknowledged commit, {} kept one", self.lost, self.kept)?;
        for (count, what) in self.tally.counts() {
            writeln!(f, "{count:>8} {what}")?;
        }
        for kind in Kind::ALL {
            writeln!(f, "{:>8} {}", self.kinds[*kind as usize], kind.name())?;
        }
        for event in Event::ALL {
            let (count, cuts) = (self.events[*event as usize], self.cut_into[*event as usize]);
            writeln!(f, "{cuts:>8} cuts into {count} times: {}", event.name())?;
        }
        Ok(())
    }
}
