//! What a product search has compared and met, besides the cuts: a count of zero is a check that never ran.

use duramen::Code;

use super::references::Phase;

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
    /// Databases found while a reference was checked, some of its documents checked already.
    pub half_checked: u64,
    /// References on data that were checked to the end.
    pub checked: u64,
    /// References whose documents lead nowhere, reported.
    pub violations: u64,
    /// Deletes and puts that a reference refused, with nothing changed.
    pub refused: u64,
    /// Deletes refused until a reference is checked.
    pub deferred: u64,
    /// Deletes that a restricting reference let pass.
    pub unrestricted: u64,
    /// Compactions that moved pages.
    pub compactions: u64,
    /// Processes of an earlier build, which store documents with the names of their fields.
    pub named: u64,
    /// Databases after a cut with compressed pages.
    pub compressed: u64,
    /// Databases after a cut with patches.
    pub patched: u64,
}

impl Tally {
    /// Counts a database with the reference of the books in this phase.
    #[must_use]
    pub fn of_reference(phase: Option<Phase>) -> Tally {
        let is_half = matches!(phase, Some(Phase::Checking(1..)));
        Tally { half_checked: u64::from(is_half), ..Tally::default() }
    }

    /// Counts a run that has removed so much. Returns whether it removed anything.
    pub fn cleaned(&mut self, removed: u64) -> bool {
        self.cleanings += u64::from(removed > 0);
        removed > 0
    }

    /// Counts a transaction that was refused with an error.
    pub fn refused_with(&mut self, code: Code) {
        match code {
            Code::StillReferenced | Code::MissingTarget => self.refused += 1,
            Code::Rebuilding => self.deferred += 1,
            _ => {}
        }
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        self.views += other.views;
        self.backups += other.backups;
        self.recoveries += other.recoveries;
        self.cleanings += other.cleanings;
        self.migrations += other.migrations;
        self.half_checked += other.half_checked;
        self.checked += other.checked;
        self.violations += other.violations;
        self.refused += other.refused;
        self.deferred += other.deferred;
        self.unrestricted += other.unrestricted;
        self.compactions += other.compactions;
        self.named += other.named;
        self.compressed += other.compressed;
        self.patched += other.patched;
    }

    /// Each count, in words.
    #[must_use]
    pub fn counts(&self) -> [(u64, &'static str); 15] {
        [
            (self.views, "answers of views compared"),
            (self.backups, "backups opened and compared"),
            (self.recoveries, "recoveries opened and compared"),
            (self.cleanings, "times that expired values or orphaned pieces were deleted"),
            (self.migrations, "migrations finished"),
            (self.half_checked, "databases found with a reference that was partly checked"),
            (self.checked, "references on data checked to the end"),
            (self.violations, "references whose documents lead nowhere, reported"),
            (self.refused, "writes that a reference refused"),
            (self.deferred, "deletes refused until a reference is checked"),
            (self.unrestricted, "deletes that a restricting reference let pass"),
            (self.compactions, "compactions that moved pages"),
            (self.named, "processes that store documents with names"),
            (self.compressed, "databases found with compressed pages"),
            (self.patched, "databases found with patches"),
        ]
    }
}
