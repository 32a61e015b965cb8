//! One call: its user, its deadline, and whether its work has begun.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duramen::error::{Code, Error, Result};
use duramen_proto::freshness::Freshness;
use http::HeaderMap;
use tokio::time::{Instant, timeout_at};

use crate::audit::{Actor, Audit, Event};
use crate::auth::Caller;
use crate::blobs::kept::KeptUploads;
use crate::limit::body::Charges;
use crate::limit::budget::{Charge, Holder};
use crate::limit::places::{Class, Place, Places};

/// The server answers this much before the deadline: an answer that comes later than the client waits is
/// none.
const BEFORE_DEADLINE: Duration = Duration::from_millis(20);

/// The header of a deadline, as gRPC names it.
const TIMEOUT: &str = "grpc-timeout";

/// One call; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) caller: Caller,
    /// Where the client is, and what it calls, for the audit.
    from: Arc<str>,
    path: Arc<str>,
    audit: Arc<Audit>,
    pub(crate) deadline: Instant,
    /// How old the state may be that it reads, on a node of a cluster.
    pub(crate) freshness: Freshness,
    begun: Arc<AtomicBool>,
    /// Documents of other collections followed one that it deleted, or kept it.
    has_followed: Arc<AtomicBool>,
    /// The client waits for no answer any more.
    gone: Arc<AtomicBool>,
    /// Where it finds uploads to attach.
    pub(crate) uploads: Arc<KeptUploads>,
    places: Arc<Places>,
    class: Class,
    place: Arc<Mutex<Option<Place>>>,
    pub(crate) charges: Arc<Charges>,
    holder: Arc<Holder>,
    /// Bytes of the call itself.
    _held: Arc<Charge>,
}

impl Call {
    pub(crate) fn new(
        (caller, from, path): (Caller, &Arc<str>, &str),
        audit: &Arc<Audit>,
        (deadline, freshness): (Instant, Freshness),
        (uploads, places): (&Arc<KeptUploads>, &Arc<Places>),
        class: Class,
        holder: &Arc<Holder>,
        held: Charge,
    ) -> Call {
        Call {
            caller,
            from: Arc::clone(from),
            path: path.into(),
            audit: Arc::clone(audit),
            deadline,
            freshness,
            begun: Arc::default(),
            has_followed: Arc::default(),
            gone: Arc::default(),
            uploads: Arc::clone(uploads),
            places: Arc::clone(places),
            class,
            place: Arc::default(),
            charges: Arc::new(Charges::default()),
            holder: Arc::clone(holder),
            _held: Arc::new(held),
        }
    }

    /// Who calls.
    pub(crate) fn actor(&self) -> Actor {
        Actor { user: self.caller.name().to_owned(), from: self.from.to_string() }
    }

    /// Tells the audit of an error, if it says that the caller may not do what it asked for.
    pub(crate) fn tell_if_refused(&self, code: Code) {
        if let Code::Unauthenticated | Code::Forbidden = code {
            let Actor { user, from } = self.actor();
            let (what, on, code) = ("refused".to_owned(), self.path.to_string(), Some(code.to_string()));
            self.audit.tell(Event { what, user, from, on, code, ..Event::default() });
        }
    }

    /// Takes a place among the calls of its class. Its message has arrived: a client that sends slowly takes
    /// none from others. Nor does one that takes none of its replies: its calls wait until it does.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if none is free within 100 ms; `DeadlinePassed` (E1108) if replies are not taken.
    pub(crate) async fn take_place(&self) -> Result<()> {
        self.take_place_of(self.class).await
    }

    /// As [`Call::take_place`], of another class.
    pub(crate) async fn take_place_of(&self, class: Class) -> Result<()> {
        let place = loop {
            self.wait_for_client().await?;
            let place = self.places.take(class, self.holder.number()).await?;
            // Calls before this one have been answered while it waited for its turn.
            if self.holder.is_caught_up() {
                break place;
            }
        };
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
        Ok(())
    }

    /// Waits until the client has taken so much of its replies that it may have others.
    ///
    /// # Errors
    /// `DeadlinePassed` (E1108) if it does not.
    pub(crate) async fn wait_for_client(&self) -> Result<()> {
        let caught_up = timeout_at(self.answer_by(), self.holder.caught_up()).await;
        caught_up.map_err(|_| deadline_passed())
    }

    /// Notes that documents of other collections were deleted or changed with one that they refer to, or that
    /// they kept it.
    pub(crate) fn note_followed(&self) {
        self.has_followed.store(true, Ordering::Relaxed);
    }

    /// An error, as the caller may see it.
    pub(crate) fn may_see(&self, error: Error) -> Error {
        self.caller.may_see(error, self.has_followed.load(Ordering::Relaxed))
    }

    /// Charges bytes that the call will hold until it ends.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if there is no room for them within 100 ms.
    pub(crate) async fn charge(&self, bytes: usize) -> Result<()> {
        let charge = self.holder.take(bytes).await?;
        self.charges.add(charge);
        Ok(())
    }

    /// As [`Call::charge`], for so long. No connection is closed for it.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if there is no room within the time.
    pub(crate) async fn charge_within(&self, bytes: usize, within: Duration) -> Result<()> {
        self.charges.add(self.holder.take_within(bytes, within).await?);
        Ok(())
    }

    /// A stream that nobody reads gives back what it holds.
    pub(crate) fn give_all_back(&self) {
        self.charges.end();
        self.give_place_back();
    }

    /// Charges bytes for as long as the charge is there.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if there is no room for them within 100 ms.
    pub(crate) async fn hold(&self, bytes: usize) -> Result<Charge> {
        self.holder.take(bytes).await
    }

    /// The same call with an earlier deadline, for a part of its work.
    pub(crate) fn until(&self, deadline: Instant) -> Call {
        Call { deadline: self.deadline.min(deadline), ..self.clone() }
    }

    /// Charges bytes of an answer that a run makes, on a thread and without waiting. The next run gives them
    /// back.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if there is no room for them.
    pub(crate) fn charge_run(&self, bytes: usize) -> Result<()> {
        let charge = self.holder.take_now(bytes)?;
        self.charges.add_of_run(charge);
        Ok(())
    }

    /// Charges bytes that a query works in, without waiting, for as long as the charge is there.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if there is no room for them.
    pub(crate) fn charge_work(&self, bytes: usize) -> Result<Charge> {
        self.holder.take_to_work(bytes)
    }

    /// A run of it begins, on a thread: from now on it may have an effect.
    ///
    /// # Errors
    /// `DeadlinePassed` (E1108) if it is too late.
    pub(crate) fn begin(&self) -> Result<()> {
        self.check_deadline()?;
        self.begun.store(true, Ordering::Relaxed);
        self.charges.end_run();
        Ok(())
    }

    /// Whether it may have an effect, or have had one.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Fails once the deadline has passed.
    ///
    /// # Errors
    /// `DeadlinePassed` (E1108).
    pub(crate) fn check_deadline(&self) -> Result<()> {
        if Instant::now() < self.answer_by() { Ok(()) } else { Err(deadline_passed()) }
    }

    /// Fails once the client waits no longer.
    ///
    /// # Errors
    /// `DeadlinePassed` (E1108), which no client sees.
    pub(crate) fn check_client(&self) -> Result<()> {
        if self.gone.load(Ordering::Relaxed) { Err(deadline_passed()) } else { Ok(()) }
    }

    /// The client waits until this is dropped or has ended.
    pub(crate) fn waits(&self) -> Waits {
        Waits(Some(Arc::clone(&self.gone)))
    }

    /// When the answer must go out.
    pub(crate) fn answer_by(&self) -> Instant {
        self.deadline.checked_sub(BEFORE_DEADLINE).unwrap_or(self.deadline)
    }

    /// Another call may have its place: this one only waits from now on.
    pub(crate) fn give_place_back(&self) {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(place);
    }
}

/// The client of a call waits for its answer. Dropped before [`Waits::end`], this marks the client as gone.
pub(crate) struct Waits(Option<Arc<AtomicBool>>);

impl Waits {
    /// The answer is there.
    pub(crate) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some(gone) = &self.0 {
            gone.store(true, Ordering::Relaxed);
        }
    }
}

/// The deadline passed, and nothing was done.
pub(crate) fn deadline_passed() -> Error {
    Error::new(Code::DeadlinePassed, "the deadline of the call passed before its work began")
        .with_hint("nothing was changed: try again with a later deadline, or with fewer calls at once")
}

/// The deadline passed while the commit was on its way.
pub(crate) fn in_doubt() -> Error {
    let what =
        "the transaction may or may not survive: the deadline of the call passed while it was committed";
    Error::new(Code::OutcomeUnknown, what)
        .with_hint("ask for its outcome by its request id; without one look whether the change is there")
}

/// The deadline that a call asks for, or the usual one; no more than the most that there may be.
///
/// # Errors
/// `InvalidArgument` (E0201) if its header is none.
pub(crate) fn deadline(headers: &HeaderMap, usual: Duration, most: Duration) -> Result<Instant> {
    let asked = headers.get(TIMEOUT).map(|value| {
        value
            .to_str()
            .ok()
            .and_then(parse)
            .ok_or_else(|| Error::invalid("the header grpc-timeout is no time"))
    });
    Ok(Instant::now() + asked.transpose()?.unwrap_or(usual).min(most))
}

/// Up to eight digits and a unit.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count = digits.parse::<u64>().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    //! A deadline that is misread is missed.
    use super::*;

    #[test]
    fn times_of_grpc_are_read() {
        assert_eq!(parse("10S"), Some(Duration::from_secs(10)));
        assert_eq!(parse("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(parse("250m"), Some(Duration::from_millis(250)));
        assert_eq!(parse("7u"), Some(Duration::from_micros(7)));
        for wrong in ["", "S", "10", "10s", "-1S", "1.5S", "123456789S", "１S"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
