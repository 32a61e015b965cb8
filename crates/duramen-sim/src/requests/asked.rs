//! One request, what it was told, and whether that holds.
//!
//! The effect of a request is a row of its own: how often it ran, and the answer of the run. So the model
//! needs no order of commits.

use duramen::requests::{Answered, Outcome, Request, RequestId, once, outcome};
use duramen::{Code, Db, Error, Reads, Transaction};

use super::ANSWERS;

/// What was told of a request, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// It was committed, with this answer.
    Committed(u64),
    /// It never will be.
    Never,
}

/// A request, and what it was told, each with the operation of the disk before which that was.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) id: RequestId,
    pub(super) index: u64,
    pub(super) told: Vec<(usize, Told)>,
}

/// How a request is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Try,
    Outcome,
}

/// Counts of the answers told.
pub(super) type Counts = [u64; ANSWERS.len()];

impl Asked {
    pub(super) fn request(&self) -> Request<'static> {
        Request::new(self.id, &self.index.to_le_bytes())
    }

    /// Runs the request: counts, and answers with a number that no other run has.
    pub(super) fn run(&self, tx: &mut Transaction<'_>) -> Result<Vec<u8>, Error> {
        let answer = tx.kv("runs").increment("all", 1)?;
        tx.kv("count").increment(self.index, 1)?;
        tx.kv("answer").put(self.index, &answer)?;
        Ok(answer.to_le_bytes().to_vec())
    }

    /// How often it ran, and the answer of the last run.
    fn effect(&self, db: &Db) -> Result<(u64, Option<u64>), String> {
        let snapshot = db.snapshot().map_err(text)?;
        let count: Option<u64> = snapshot.kv("count").get(self.index).map_err(text)?;
        let answer: Option<u64> = snapshot.kv("answer").get(self.index).map_err(text)?;
        Ok((count.unwrap_or(0), answer))
    }

    /// Asks for it, and checks the answer against its effect and against all that it was told.
    pub(super) fn ask(&mut self, db: &Db, how: How, counts: &mut Counts) -> Result<(), String> {
        self.check(db)?;
        let before = self.effect(db)?;
        let (kind, told) = match how {
            How::Try => match once(db, &self.request(), |tx| self.run(tx)) {
                Ok(Answered { answer, is_repeated, .. }) => {
                    (usize::from(is_repeated), Some(Told::Committed(number(&answer)?)))
                }
                Err(error) => refused(&error)?,
            },
            How::Outcome => match outcome(db, self.id, "") {
                Ok(Outcome::Committed(answer)) => (2, Some(Told::Committed(number(&answer)?))),
                Ok(Outcome::Never) => (3, Some(Told::Never)),
                Err(error) => refused(&error)?,
            },
        };
        counts[kind] += 1;
        let after = self.effect(db)?;
        if kind > 0 && before != after {
            return Err(format!(
                "{}: {}, and its effect changed: {before:?} {after:?}",
                self.id, ANSWERS[kind]
            ));
        }
        // An id ahead of the clock is refused only if no try of it has run. One that is too old may have run.
        if ANSWERS[kind] == "ahead of the clock" && after.0 > 0 {
            return Err(format!("{}: it ran, and is refused as ahead of the clock", self.id));
        }
        self.told.extend(told.map(|told| (0, told)));
        self.check(db)
    }

    /// Whether its effect is what it was told.
    pub(super) fn check(&self, db: &Db) -> Result<(), String> {
        let (count, answer) = self.effect(db)?;
        if count > 1 {
            return Err(format!("{}: it ran {count} times", self.id));
        }
        for (_, told) in &self.told {
            let holds = match told {
                Told::Committed(wanted) => count == 1 && answer == Some(*wanted),
                Told::Never => count == 0,
            };
            if !holds {
                return Err(format!("{}: told {told:?}; it ran {count} times, with {answer:?}", self.id));
            }
        }
        Ok(())
    }
}

/// The kind of a refusal.
fn refused(error: &Error) -> Result<(usize, Option<Told>), String> {
    match error.code() {
        Code::RequestCancelled => Ok((4, Some(Told::Never))),
        Code::RequestTooOld => Ok((5, None)),
        Code::InvalidArgument if error.message().contains("ahead of the clock") => Ok((6, None)),
        _ => Err(text(error)),
    }
}

fn number(answer: &[u8]) -> Result<u64, String> {
    let bytes = answer.try_into().map_err(|_| format!("an answer of {} bytes", answer.len()))?;
    Ok(u64::from_le_bytes(bytes))
}

pub(super) fn text(error: impl std::borrow::Borrow<Error>) -> String {
    let error = error.borrow();
    format!("{} {error}", error.code())
}
