//! Collections that refer to each other, with every action on a delete, and what they must hold.
//!
//! Owns the types and the model. Members refer to teams and to each other (`cascade`, `clear`), and bookings
//! to rooms and members (`restrict`). Books refer to shelves by a reference that is added, changed and
//! dropped by name while there are documents: they may then refer to nothing (decision 0032).

pub mod judge;
pub mod writes;

use std::collections::{BTreeMap, BTreeSet};

use duramen::{Code, Collection, Db, Error, LocalReads, OnDelete, Reference, ReferenceState, Schema};
use serde::{Deserialize, Serialize};

/// The collection whose reference is added to documents.
pub const BOOKS: &str = "books";

/// The collection that books refer to.
pub const SHELVES: &str = "shelves";

/// The field by which they do.
pub const SHELF: &str = "shelf";

/// What members refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Collection)]
#[collection(name = "teams")]
pub struct Team {
    /// Its key.
    #[key]
    pub id: u64,
}

/// A document with references: it goes with its team and its boss, and forgets its second team.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Collection)]
#[collection(name = "members")]
pub struct Member {
    /// Its key.
    #[key]
    pub id: u64,
    /// Its team.
    #[references(Team, on_delete = cascade)]
    pub team: u64,
    /// Another one.
    #[references(Team, on_delete = clear)]
    pub second: Option<u64>,
    /// A document of the same collection.
    #[references(Member, on_delete = cascade)]
    pub boss: Option<u64>,
}

/// What bookings refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Collection)]
#[collection(name = "rooms")]
pub struct Room {
    /// Its key.
    #[key]
    pub id: u64,
}

/// A document that keeps what it refers to from being deleted, also by a cascade.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Collection)]
#[collection(name = "bookings")]
pub struct Booking {
    /// Its key.
    #[key]
    pub id: u64,
    /// Its room.
    #[references(Room, on_delete = restrict)]
    pub room: u64,
    /// Its holder.
    #[references(Member, on_delete = restrict)]
    pub holder: Option<u64>,
}

/// How far the reference of the books is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Every book was checked.
    Checked,
    /// So many books are checked.
    Checking(u64),
    /// The check has met books that refer to nothing, and reports them.
    Failed,
}

impl Phase {
    /// The phase of a reference.
    #[must_use]
    pub fn of(state: &ReferenceState) -> Phase {
        match (&state.phase, &state.failed) {
            (duramen::ViewPhase::Ready, _) => Phase::Checked,
            (_, Some(_)) => Phase::Failed,
            (duramen::ViewPhase::Building { documents, .. }, None) => Phase::Checking(*documents),
            (_, None) => Phase::Checking(0),
        }
    }

    /// That of the books' reference in a database; `None` without the reference.
    ///
    /// # Errors
    /// The database's error.
    pub fn of_books(db: &Db) -> Result<Option<Phase>, Error> {
        let states = db.snapshot()?.documents(BOOKS).references();
        match states {
            Err(error) if error.code() == Code::NoSuchTree => Ok(None),
            states => Ok(states?.first().map(Phase::of)),
        }
    }
}

/// The reference of the books, with an action.
#[must_use]
pub fn of_books(action: OnDelete) -> Reference {
    Reference::new(SHELF, SHELVES).on_delete(action)
}

/// The schemas of the collections without types.
#[must_use]
pub fn schemas() -> [Schema; 2] {
    [SHELVES, BOOKS].map(|name| Schema::new(name).key(["id"]))
}

/// The documents of all these collections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Referring {
    /// Keys of documents that members refer to.
    pub teams: BTreeSet<u64>,
    /// Members by key.
    pub members: BTreeMap<u64, Member>,
    /// Keys of documents that bookings refer to.
    pub rooms: BTreeSet<u64>,
    /// Bookings by key.
    pub bookings: BTreeMap<u64, Booking>,
    /// Keys of documents that books refer to.
    pub shelves: BTreeSet<u64>,
    /// Books by key, each with its shelf.
    pub books: BTreeMap<u64, Option<u64>>,
    /// What the reference of the books does on a delete, if there is one.
    pub reference: Option<OnDelete>,
}

impl Referring {
    /// Deletes a team: its members go, and those whose bosses go; others forget it as their second.
    pub fn delete_team(&mut self, id: u64) {
        if !self.teams.remove(&id) {
            return;
        }
        let of_team = self.members.values().filter(|member| member.team == id);
        let gone: Vec<u64> = of_team.map(|member| member.id).collect();
        gone.into_iter().for_each(|member| self.delete_member(member));
        let second = self.members.values_mut().filter(|member| member.second == Some(id));
        second.for_each(|member| member.second = None);
    }

    /// Deletes a member, and those whose bosses go.
    pub fn delete_member(&mut self, id: u64) {
        let mut gone = vec![id];
        while let Some(id) = gone.pop() {
            if self.members.remove(&id).is_some() {
                let below = self.members.values().filter(|member| member.boss == Some(id));
                gone.extend(below.map(|member| member.id));
            }
        }
    }

    /// Deletes a shelf, and does to its books what the reference says.
    pub fn delete_shelf(&mut self, id: u64) {
        if !self.shelves.remove(&id) {
            return;
        }
        match self.reference {
            None | Some(OnDelete::Restrict) => {}
            Some(OnDelete::Cascade) => self.books.retain(|_, shelf| *shelf != Some(id)),
            Some(OnDelete::Clear) => {
                self.books.values_mut().filter(|shelf| **shelf == Some(id)).for_each(|shelf| *shelf = None);
            }
        }
    }

    /// Whether a booking refers to a room or a member that is not there.
    #[must_use]
    pub fn has_broken_booking(&self) -> bool {
        self.bookings.values().any(|booking| {
            !self.rooms.contains(&booking.room)
                || booking.holder.is_some_and(|holder| !self.members.contains_key(&holder))
        })
    }

    /// Shelves that books refer to and that are not there, once for each book. Without the reference none is
    /// missing.
    #[must_use]
    pub fn missing_shelves(&self) -> Vec<u64> {
        let all = self.books.values().flatten().filter(|shelf| !self.shelves.contains(shelf));
        all.filter(|_| self.reference.is_some()).copied().collect()
    }
}
