//! A consumer of the change feed whose work and position are one transaction on the server.

use std::mem;
use std::time::Duration;

use duramen::AnyChange;
use duramen::error::{Code, Error, ErrorKind, Result};
use duramen_proto::{change, v1};

use super::transaction::{RemoteTransaction, lacks};
use super::{Remote, is_transient, repeatable};
use crate::client::Watched;

/// How long the rest of a commit is waited for.
const REST: Duration = Duration::from_secs(30);

/// Changes of a step, about.
const BATCH_CHANGES: usize = 256;

/// A consumer of a served database: each change takes effect once, also if the program is killed.
///
/// The writes of a step and the new position are one transaction. One program runs a consumer at a time: of
/// two, one gets `WriteConflict` (E0101) and goes on behind the other.
#[derive(Debug)]
pub struct RemoteConsumer<'a> {
    remote: &'a Remote,
    name: String,
    /// Everything up to this commit was handled.
    position: u64,
    watched: Option<Watched>,
    /// Whole commits that were read and not handled, up to `last`.
    batch: Vec<AnyChange>,
    last: u64,
    /// The beginning of the commit behind them.
    part: Vec<AnyChange>,
    batch_changes: usize,
}

impl Remote {
    /// The consumer of a name. It is registered if it is not: from the changes that are to come on, or from
    /// the first one there was. One that exists goes on from its position.
    ///
    /// # Errors
    /// As [`duramen::ConsumerOptions::register`]; `Unreachable` (E1111) after 30 seconds.
    pub fn consumer(&self, name: &str, from_beginning: bool) -> Result<RemoteConsumer<'_>> {
        let start = if from_beginning { v1::WatchStart::Beginning } else { v1::WatchStart::Now };
        let request = v1::RegisterConsumerRequest {
            name: name.to_owned(),
            start: start.into(),
            ..v1::RegisterConsumerRequest::default()
        };
        let registered = self.again(|| self.client.register_consumer(request.clone()).map_err(repeatable))?;
        let position = registered.position.ok_or_else(|| lacks("position"))?.seq;
        Ok(RemoteConsumer {
            remote: self,
            name: name.to_owned(),
            position,
            watched: None,
            batch: Vec::new(),
            last: position,
            part: Vec::new(),
            batch_changes: BATCH_CHANGES,
        })
    }
}

impl RemoteConsumer<'_> {
    /// Sets the approximate number of changes of a step. All changes of one commit come together.
    #[must_use]
    pub fn batch(self, changes: usize) -> Self {
        RemoteConsumer { batch_changes: changes.max(1), ..self }
    }

    /// Everything up to this commit was handled.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Handles the next changes in a transaction, together with the new position. Returns how many there
    /// were; 0 if none came within the time.
    ///
    /// `handle` runs again after a conflict. If the connection is lost during the commit, its outcome is
    /// asked for.
    ///
    /// # Errors
    /// What `handle` returned: the next step has the same changes. As [`Remote::transact`], and those of
    /// [reading changes](duramen::Error#changes). `WriteConflict` (E0101) if another program has moved the
    /// consumer; the next step goes on behind it. `Unreadable` (E0213) for a change that cannot be read.
    pub fn step(
        &mut self,
        within: Duration,
        mut handle: impl FnMut(&mut RemoteTransaction, &[AnyChange]) -> Result<()>,
    ) -> Result<usize> {
        self.read(within)?;
        if self.last == self.position {
            return Ok(0);
        }
        let (name, from, to, changes) = (&self.name, self.position, self.last, &self.batch);
        let done = self.remote.transact(|tx| {
            // With the first message: what another program has handled is not handled again.
            tx.advance(name, from, to)?;
            if changes.is_empty() { Ok(()) } else { handle(tx, changes) }
        });
        match done {
            Ok(()) => {
                self.position = to;
                Ok(mem::take(&mut self.batch).len())
            }
            Err(error) if error.code() == Code::DocumentChanged => Err(self.if_overtaken(error)?),
            Err(error) => Err(error),
        }
    }

    /// Reads whole commits until there are enough changes, or no more of them.
    fn read(&mut self, within: Duration) -> Result<()> {
        while self.batch.len() < self.batch_changes {
            let wait = match (self.part.is_empty(), self.last > self.position) {
                (false, _) => REST,
                // Behind what was read only what is there already.
                (true, true) => Duration::ZERO,
                (true, false) => within,
            };
            let reply = match self.watched()?.next_within(wait) {
                Ok(Some(Some(reply))) => reply,
                Ok(None) => return Ok(()),
                Ok(Some(None)) => {
                    self.begin_again();
                    continue;
                }
                Err(error) => {
                    self.begin_again();
                    if is_transient(&error) || error.kind() == ErrorKind::Expired {
                        continue;
                    }
                    return Err(error);
                }
            };
            for message in &reply.changes {
                match change::of(message) {
                    Ok(change) => self.part.push(change),
                    Err(error) => {
                        self.begin_again();
                        // What comes before it is handled first.
                        return if self.last > self.position { Ok(()) } else { Err(error) };
                    }
                }
            }
            if let Some(position) = reply.position {
                self.batch.append(&mut self.part);
                self.last = position.seq;
            }
        }
        Ok(())
    }

    /// What was read of a commit that is not whole comes again.
    fn begin_again(&mut self) {
        self.watched = None;
        self.part.clear();
    }

    fn watched(&mut self) -> Result<&mut Watched> {
        if self.watched.is_none() {
            let client = &self.remote.client;
            let epoch = client.hello().database_id.slice(..8);
            let after = Some(v1::Token { epoch, seq: self.last, run: 0 });
            let start = v1::WatchStart::After.into();
            let request = v1::WatchRequest { start, after, ..v1::WatchRequest::default() };
            self.watched = Some(self.remote.again(|| client.watch(request.clone()))?);
        }
        self.watched.as_mut().ok_or_else(|| lacks("changes"))
    }

    /// The error of a step whose position was not the consumer's.
    fn if_overtaken(&mut self, error: Error) -> Result<Error> {
        let all = self.remote.again(|| self.remote.client.consumers())?;
        let known = all.iter().find(|known| known.name == self.name);
        let position = known.and_then(|known| known.position.as_ref()).map(|position| position.seq);
        match position {
            Some(position) if position != self.position => {
                (self.position, self.last) = (position, position);
                self.batch.clear();
                self.begin_again();
                let what =
                    format!("the consumer {:?} was moved to commit {position} by another program", self.name);
                Ok(Error::new(Code::WriteConflict, what)
                    .with_hint("step again to go on from there; let one process run a consumer"))
            }
            _ => Ok(error),
        }
    }
}
