//! Writes of documents that refer to others: drawn, performed, applied to the model, and which of them must
//! be refused.

use duramen::{Code, Document, Error, LocalReads, OnDelete, Transaction, doc};

use super::{BOOKS, Booking, Member, Phase, Referring, Room, SHELVES, Team};
use crate::search::random::Random;

/// Number of different documents of each collection.
const TEAM_COUNT: usize = 5;
const MEMBER_COUNT: usize = 16;
const ROOM_COUNT: usize = 4;
const BOOKING_COUNT: usize = 8;
const SHELF_COUNT: usize = 5;
const BOOK_COUNT: usize = 20;

/// One write.
#[derive(Debug, Clone)]
pub enum ReferenceWrite {
    /// Stores a document that members refer to.
    PutTeam(u64),
    /// Deletes one, with all that refers to it.
    DeleteTeam(u64),
    /// Stores a document with references.
    PutMember(Member),
    /// Deletes one, with all that refers to it.
    DeleteMember(u64),
    /// Stores a document that bookings refer to.
    PutRoom(u64),
    /// Deletes one, which its bookings refuse.
    DeleteRoom(u64),
    /// Stores a booking.
    PutBooking(Booking),
    /// Deletes a booking.
    DeleteBooking(u64),
    /// Stores a document that books refer to.
    PutShelf(u64),
    /// Deletes one, and does to its books what the reference says.
    DeleteShelf(u64),
    /// Stores a book.
    PutBook(u64, Option<u64>),
    /// Deletes a book.
    DeleteBook(u64),
}

/// What a transaction with a write must come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It commits.
    Passes,
    /// The call is refused.
    RefusedAtOnce(Code),
    /// The commit is refused.
    RefusedAtCommit(Code),
    /// The commit may be refused: only the database knows which books its check has reached.
    MayBeRefused(Code),
}

fn some_of(count: usize, random: &mut Random) -> u64 {
    random.below(count) as u64
}

/// One that is there, mostly; now and then any.
fn some_target(there: &[u64], count: usize, random: &mut Random) -> u64 {
    if there.is_empty() || random.chance(1, 6) { some_of(count, random) } else { *random.pick(there) }
}

impl ReferenceWrite {
    /// Draws a write.
    #[must_use]
    pub fn some(state: &Referring, phase: Option<Phase>, random: &mut Random) -> ReferenceWrite {
        use ReferenceWrite::{
            DeleteBook, DeleteBooking, DeleteMember, DeleteRoom, DeleteTeam, PutRoom, PutShelf, PutTeam,
        };
        match random.below(18) {
            0..=1 => PutTeam(some_of(TEAM_COUNT, random)),
            2..=3 => some_member(state, random),
            4 => DeleteTeam(some_of(TEAM_COUNT, random)),
            5 => DeleteMember(some_of(MEMBER_COUNT, random)),
            6 => PutRoom(some_of(ROOM_COUNT, random)),
            7..=8 => DeleteRoom(some_of(ROOM_COUNT, random)),
            9..=10 => some_booking(state, random),
            11 => DeleteBooking(some_of(BOOKING_COUNT, random)),
            12..=13 => PutShelf(some_of(SHELF_COUNT, random)),
            14..=15 => some_deleted_shelf(state, phase, random),
            16 => some_book(state, random),
            _ => DeleteBook(some_of(BOOK_COUNT, random)),
        }
    }

    /// What a transaction with it must come to.
    #[must_use]
    pub fn outcome(&self, state: &Referring, phase: Option<Phase>) -> Outcome {
        use ReferenceWrite::{
            DeleteMember, DeleteRoom, DeleteShelf, DeleteTeam, PutBook, PutBooking, PutMember,
        };
        let mut after = state.clone();
        self.apply(&mut after);
        match self {
            DeleteRoom(_) | DeleteTeam(_) | DeleteMember(_) if after.has_broken_booking() => {
                Outcome::RefusedAtCommit(Code::StillReferenced)
            }
            PutBooking(_) if after.has_broken_booking() => Outcome::RefusedAtCommit(Code::MissingTarget),
            PutMember(member) if !state.teams.contains(&member.team) => {
                Outcome::RefusedAtCommit(Code::MissingTarget)
            }
            // A book that refers as before is not checked again.
            PutBook(id, Some(shelf))
                if state.reference.is_some()
                    && !state.shelves.contains(shelf)
                    && state.books.get(id) != Some(&Some(*shelf)) =>
            {
                Outcome::RefusedAtCommit(Code::MissingTarget)
            }
            DeleteShelf(id) if state.shelves.contains(id) => {
                let is_referred_to = state.books.values().any(|shelf| *shelf == Some(*id));
                let is_restricted = state.reference == Some(OnDelete::Restrict) && is_referred_to;
                match phase {
                    Some(Phase::Checking(_)) => Outcome::RefusedAtOnce(Code::Rebuilding),
                    Some(Phase::Checked) if is_restricted => Outcome::RefusedAtCommit(Code::StillReferenced),
                    Some(Phase::Failed) if is_restricted => Outcome::MayBeRefused(Code::StillReferenced),
                    _ => Outcome::Passes,
                }
            }
            _ => Outcome::Passes,
        }
    }

    /// Whether it is a delete that a restricting reference lets pass, of a document that is there.
    #[must_use]
    pub fn is_unrestricted_delete(&self, state: &Referring) -> bool {
        matches!(self, ReferenceWrite::DeleteRoom(id) if state.rooms.contains(id))
    }

    /// Performs it on the database.
    ///
    /// # Errors
    /// The database's error.
    pub fn perform(&self, tx: &mut Transaction<'_>) -> Result<(), Error> {
        match self {
            ReferenceWrite::PutTeam(id) => tx.put(&Team { id: *id }),
            ReferenceWrite::DeleteTeam(id) => tx.delete::<Team>(*id).map(drop),
            ReferenceWrite::PutMember(member) => tx.put(member),
            ReferenceWrite::DeleteMember(id) => tx.delete::<Member>(*id).map(drop),
            ReferenceWrite::PutRoom(id) => tx.put(&Room { id: *id }),
            ReferenceWrite::DeleteRoom(id) => tx.delete::<Room>(*id).map(drop),
            ReferenceWrite::PutBooking(booking) => tx.put(booking),
            ReferenceWrite::DeleteBooking(id) => tx.delete::<Booking>(*id).map(drop),
            ReferenceWrite::PutShelf(id) => tx.documents(SHELVES).put(doc! { "id": *id }),
            ReferenceWrite::DeleteShelf(id) => tx.documents(SHELVES).delete(*id).map(drop),
            ReferenceWrite::PutBook(id, shelf) => tx.documents(BOOKS).put(book_document(*id, *shelf)),
            ReferenceWrite::DeleteBook(id) => tx.documents(BOOKS).delete(*id).map(drop),
        }
    }

    /// Applies it to the model.
    pub fn apply(&self, state: &mut Referring) {
        match self {
            ReferenceWrite::PutTeam(id) => drop(state.teams.insert(*id)),
            ReferenceWrite::DeleteTeam(id) => state.delete_team(*id),
            ReferenceWrite::PutMember(member) => drop(state.members.insert(member.id, member.clone())),
            ReferenceWrite::DeleteMember(id) => state.delete_member(*id),
            ReferenceWrite::PutRoom(id) => drop(state.rooms.insert(*id)),
            ReferenceWrite::DeleteRoom(id) => drop(state.rooms.remove(id)),
            ReferenceWrite::PutBooking(booking) => drop(state.bookings.insert(booking.id, booking.clone())),
            ReferenceWrite::DeleteBooking(id) => drop(state.bookings.remove(id)),
            ReferenceWrite::PutShelf(id) => drop(state.shelves.insert(*id)),
            ReferenceWrite::DeleteShelf(id) => state.delete_shelf(*id),
            ReferenceWrite::PutBook(id, shelf) => drop(state.books.insert(*id, *shelf)),
            ReferenceWrite::DeleteBook(id) => drop(state.books.remove(id)),
        }
    }
}

/// A book as it is stored.
#[must_use]
pub fn book_document(id: u64, shelf: Option<u64>) -> Document {
    doc! { "id": id, "shelf": shelf }
}

/// A member of a team that is there; without one, a team.
fn some_member(state: &Referring, random: &mut Random) -> ReferenceWrite {
    let teams: Vec<u64> = state.teams.iter().copied().collect();
    if teams.is_empty() {
        return ReferenceWrite::PutTeam(some_of(TEAM_COUNT, random));
    }
    let id = some_of(MEMBER_COUNT, random);
    let bosses: Vec<u64> = state.members.keys().copied().chain([id]).collect();
    let team = some_target(&teams, TEAM_COUNT, random);
    let second = random.chance(1, 2).then(|| *random.pick(&teams));
    let boss = random.chance(1, 2).then(|| *random.pick(&bosses));
    ReferenceWrite::PutMember(Member { id, team, second, boss })
}

/// A booking of a room, mostly of one that is there.
fn some_booking(state: &Referring, random: &mut Random) -> ReferenceWrite {
    let rooms: Vec<u64> = state.rooms.iter().copied().collect();
    if rooms.is_empty() {
        return ReferenceWrite::PutRoom(some_of(ROOM_COUNT, random));
    }
    let members: Vec<u64> = state.members.keys().copied().collect();
    let room = some_target(&rooms, ROOM_COUNT, random);
    let holder = random.chance(1, 3).then(|| some_target(&members, MEMBER_COUNT, random));
    ReferenceWrite::PutBooking(Booking { id: some_of(BOOKING_COUNT, random), room, holder })
}

/// A book, mostly on a shelf that is there.
#[must_use]
pub fn some_book(state: &Referring, random: &mut Random) -> ReferenceWrite {
    let shelves: Vec<u64> = state.shelves.iter().copied().collect();
    let shelf = random.chance(5, 6).then(|| some_target(&shelves, SHELF_COUNT, random));
    ReferenceWrite::PutBook(some_of(BOOK_COUNT, random), shelf)
}

/// A shelf to delete. After a failed check, the model does not know which books a delete would reach.
fn some_deleted_shelf(state: &Referring, phase: Option<Phase>, random: &mut Random) -> ReferenceWrite {
    let id = some_of(SHELF_COUNT, random);
    let is_known = phase != Some(Phase::Failed) || state.reference == Some(OnDelete::Restrict);
    if is_known || state.books.values().all(|shelf| *shelf != Some(id)) {
        ReferenceWrite::DeleteShelf(id)
    } else {
        ReferenceWrite::PutShelf(id)
    }
}
