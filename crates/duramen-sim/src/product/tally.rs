//! What a product search has compared and met, besides the cuts: a count of zero is a check that never ran.

/// Counts over lives and over databases after cuts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Views that answered, with all answers compared.
    pub views: u64,
    /// Backups opened and compared.
    pub backups: u64,
    /// Repaired databases opened and compared.
    pub recoveries: u64,
    /// Runs that deleted expired values or collected orphaned pieces.
    pub cleanings: u64,
    /// Migrations that came to their end.
    pub migrations: u64,
}

impl Tally {
    /// Counts a run that has removed so much. Returns whether it removed anything.
    pub fn cleaned(&mut self, removed: u64) -> bool {
        self.cleanings += u64::from(removed > 0);
        removed > 0
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        let Tally { views, backups, recoveries, cleanings, migrations } = other;
        self.views += views;
        self.backups += backups;
        self.recoveries += recoveries;
        self.cleanings += cleanings;
        self.migrations += migrations;
    }

    /// Each count, in words.
    #[must_use]
    pub fn counts(&self) -> [(u64, &'static str); 5] {
        [
            (self.views, "answers of views compared"),
            (self.backups, "backups opened and compared"),
            (self.recoveries, "recoveries opened and compared"),
            (self.cleanings, "times that expired values or orphaned pieces were deleted"),
            (self.migrations, "migrations finished"),
        ]
    }
}
