//! What a product search has compared and seen done, besides the cuts themselves: a count that stays at zero is an oracle that never
//! spoke.

/// Counts, of lives and of what was made of their cuts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Views that answered, with everything they say compared.
    pub views: u64,
    /// Backups opened and compared.
    pub backups: u64,
    /// Recoveries opened and compared.
    pub recoveries: u64,
    /// Sweeps that removed something.
    pub sweeps: u64,
    /// Migrations that came to their end.
    pub migrations: u64,
}

impl Tally {
    /// Counts a sweep that has removed so much. Whether that was anything.
    pub fn swept(&mut self, removed: u64) -> bool {
        self.sweeps += u64::from(removed > 0);
        removed > 0
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        let Tally { views, backups, recoveries, sweeps, migrations } = other;
        self.views += views;
        self.backups += backups;
        self.recoveries += recoveries;
        self.sweeps += sweeps;
        self.migrations += migrations;
    }

    /// Each count, in words.
    #[must_use]
    pub fn counts(&self) -> [(u64, &'static str); 5] {
        [
            (self.views, "answers of views compared"),
            (self.backups, "backups opened and compared"),
            (self.recoveries, "recoveries opened and compared"),
            (self.sweeps, "sweeps that removed something"),
            (self.migrations, "migrations finished"),
        ]
    }
}
