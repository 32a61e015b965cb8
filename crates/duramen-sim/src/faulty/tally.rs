//! What a search with faults has met: how often each kind of fault was hit, and its consequences.
//!
//! Owns the counts. If a kind was never hit, or a consequence never occurred, the search does not cover it.

use super::storm::FaultKind;

macro_rules! consequences {
    ($($name:ident = $text:literal,)*) => {
        /// What came of a fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each has its words in `name`")]
        pub enum Consequence { $($name,)* }

        impl Consequence {
            /// Every consequence.
            pub const ALL: &'static [Consequence] = &[$(Consequence::$name,)*];

            /// In words.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Consequence::$name => $text,)* }
            }
        }
    };
}

consequences! {
    RefusedFull = "a call was refused for want of room",
    RefusedIo = "a call was refused with the system's error",
    Poisoned = "the engine was poisoned",
    InDoubt = "a commit was in doubt",
    DoubtKept = "a commit in doubt was there",
    DoubtLost = "a commit in doubt was not there",
    TakenBack = "a commit acknowledged at level Memory was taken back",
    CompactionRefused = "a compaction was refused",
    CompactionPoisoned = "a compaction met poison",
    CompactedAgain = "a compaction ended after one that found the disk full",
    OpenFailed = "opening failed",
    OpenWentOn = "opening went on over a fault",
    Reopened = "opened again in the same boot, after poison",
    CutPoisoned = "the power was cut, poisoned",
    CutFull = "the power was cut on a full disk",
    ReadOld = "a page read old after a failed sync",
    NamedAtOpen = "a lie of the medium was named when opening",
    NamedLater = "a lie of the medium was named by a call",
    Harmless = "a lie of the medium was harmless",
}

/// Counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Faults met, in the order of [`FaultKind::ALL`].
    pub faults: [u64; FaultKind::ALL.len()],
    /// Consequences, in the order of [`Consequence::ALL`].
    pub consequences: [u64; Consequence::ALL.len()],
}

impl Tally {
    /// Counts a fault that was met.
    pub fn met(&mut self, kind: FaultKind) {
        self.faults[kind as usize] += 1;
    }

    /// Counts a consequence.
    pub fn came(&mut self, consequence: Consequence) {
        self.consequences[consequence as usize] += 1;
    }

    /// Whether a lie of the medium was reported.
    #[must_use]
    pub fn has_named(&self) -> bool {
        [Consequence::NamedAtOpen, Consequence::NamedLater]
            .iter()
            .any(|consequence| self.consequences[*consequence as usize] > 0)
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        let mine = self.faults.iter_mut().chain(&mut self.consequences);
        for (mine, theirs) in mine.zip(other.faults.iter().chain(&other.consequences)) {
            *mine += theirs;
        }
    }

    /// Every count with its words.
    pub fn lines(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let faults = self.faults.iter().zip(FaultKind::ALL).map(|(count, kind)| (*count, kind.name()));
        let came = self.consequences.iter().zip(Consequence::ALL);
        faults.chain(came.map(|(count, consequence)| (*count, consequence.name())))
    }
}
