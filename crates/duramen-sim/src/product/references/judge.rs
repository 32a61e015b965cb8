//! Compares collections that refer to each other with the model, and checks that no reference is trusted that
//! leads nowhere.

use duramen::{Code, Db, Document, Span, Value};

use super::{BOOKS, Booking, Member, Phase, Referring, Room, SHELVES, Team, of_books};
use crate::product::judge::{Verdict, failed, same};
use crate::product::shop::answer;

/// Compares every document, and the reference of the books. Returns how far that is checked.
///
/// # Errors
/// What differs.
pub fn references_equal(db: &Db, state: &Referring) -> Result<Option<Phase>, String> {
    let found = db.collection::<Team>().to_vec().map_err(failed("teams"))?;
    same("teams", &found, &state.teams.iter().map(|id| Team { id: *id }).collect())?;
    let found = db.collection::<Member>().to_vec().map_err(failed("members"))?;
    same("members", &found, &state.members.values().cloned().collect())?;
    let found = db.collection::<Room>().to_vec().map_err(failed("rooms"))?;
    same("rooms", &found, &state.rooms.iter().map(|id| Room { id: *id }).collect())?;
    let found = db.collection::<Booking>().to_vec().map_err(failed("bookings"))?;
    same("bookings", &found, &state.bookings.values().cloned().collect())?;
    same("a booking of what is not there", &state.has_broken_booking(), &false)?;
    documents(db, SHELVES, &state.shelves.iter().map(|id| (*id, None)).collect::<Vec<_>>())?;
    let books: Vec<(u64, Option<u64>)> = state.books.iter().map(|(id, shelf)| (*id, *shelf)).collect();
    documents(db, BOOKS, &books)?;
    reference(db, state)
}

/// A collection without a type, by its keys and shelves.
fn documents(db: &Db, name: &str, wanted: &[(u64, Option<u64>)]) -> Verdict {
    let Some(found) = answer(db.documents(name).scan(Span::all())).map_err(failed(name))? else {
        return same(name, &0, &wanted.len());
    };
    let number = |document: &Document, field: &str| match document.get(field) {
        Some(Value::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    };
    let mut all = Vec::new();
    for document in found {
        let document = document.map_err(failed(name))?;
        let id = number(&document, "id").ok_or_else(|| format!("{name}: {document:?}"))?;
        all.push((id, number(&document, "shelf")));
    }
    same(name, &all[..], wanted)
}

/// The reference is the one of the model, and is not trusted while a book refers to nothing.
fn reference(db: &Db, state: &Referring) -> Result<Option<Phase>, String> {
    let states = match db.documents(BOOKS).references() {
        Err(error) if error.code() == Code::NoSuchTree => Vec::new(),
        states => states.map_err(failed("references"))?,
    };
    let found: Vec<_> =
        states.iter().map(|known| (known.reference.field(), known.reference.action())).collect();
    let wanted = state.reference.map(of_books);
    let wanted: Vec<_> = wanted.iter().map(|wanted| (wanted.field(), wanted.action())).collect();
    same("the references of the books", &found, &wanted)?;
    let phase = states.first().map(Phase::of);
    let missing = state.missing_shelves();
    if phase == Some(Phase::Checked) && !missing.is_empty() {
        return Err(format!("the reference of the books is trusted, and shelves are missing: {missing:?}"));
    }
    Ok(phase)
}
