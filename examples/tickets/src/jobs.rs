//! Jobs: from changes of tickets to mails, in two threads that run as long as the server.
//!
//! The announcer follows the change feed and turns changes into jobs: exactly once, as the jobs and its
//! position are one transaction. The worker takes due jobs and mails: at least once, as no mail can be sent
//! and noted in one step.

use std::sync::Arc;
use std::time::Duration;

use duramen::prelude::*;
use duramen::{Change, Changed, Code, Consuming};

use crate::mail::{Mail, Mailer};
use crate::model::{Job, JobsByDue, Task, Ticket, User};
use crate::server::Settings;
use crate::signal::Signal;
use crate::times::{later, until};

/// The longest wait without a look at the jobs.
const IDLE: Duration = Duration::from_secs(60);

/// The wait after a conflict or on a full disk.
const PAUSE: Duration = Duration::from_secs(1);

/// The assignee of each ticket that was announced last. The feed has the new ticket only, not the one before.
const ANNOUNCED: &str = "announced assignees";

/// Adds a job that is due now, and wakes the worker after the commit.
///
/// # Errors
/// As [`Transaction::push`].
pub fn push(tx: &mut Transaction<'_>, added: &Signal, task: Task) -> Result<()> {
    tx.push(Job { id: 0, task, due: Some(Time::now()), failures: 0, last_failure: None })?;
    let added = added.clone();
    tx.after_commit(move || added.raise());
    Ok(())
}

/// Turns changes of tickets into jobs.
pub struct Announcer {
    changes: Consuming<Change<Ticket>>,
    job_added: Signal,
    stop: Signal,
}

impl Announcer {
    /// Registers the consumer, or continues where it was. In a restored backup it begins anew, with what the
    /// tickets hold.
    ///
    /// # Errors
    /// As [`ConsumerOptions::register`](duramen::ConsumerOptions::register) and
    /// [`Consumer::read`](duramen::Consumer::read).
    pub fn new(db: &Db, job_added: Signal, stop: Signal) -> Result<Announcer> {
        // Writers are refused rather than changes lost: without an announcement a ticket lies unseen.
        let consumer = db.consumer("announcer").from_oldest().refuse_writers().register()?;
        let changes = match consumer.read() {
            Err(error) if error.code() == Code::FeedGap => {
                // The position first: what changes after it comes as a change, too, and is announced once.
                consumer.seek(db.feed().newest)?;
                announce_all(db, &job_added)?;
                consumer.read()?
            }
            read => read?,
        };
        let changes = changes.skip_unreadable(|error| eprintln!("tickets: not announced: {error}"));
        Ok(Announcer { changes, job_added, stop })
    }

    /// Ends [`Announcer::run`] from another thread.
    pub fn stopper(&self) -> duramen::ChangeStop {
        self.changes.stopper()
    }

    /// Follows the changes until it is stopped or the database is closed.
    ///
    /// # Errors
    /// What no waiting mends: a corrupt feed, a poisoned database.
    pub fn run(mut self) -> Result<()> {
        let job_added = self.job_added;
        loop {
            match self
                .changes
                .follow(|tx, changes| changes.iter().try_for_each(|change| announce(tx, &job_added, change)))
            {
                Ok(_) => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Full) => {
                    eprintln!("tickets: the announcer waits: {error}");
                    self.stop.wait(PAUSE);
                }
                Err(error) => return Err(error),
            }
            if self.stop.is_ended() {
                return Ok(());
            }
        }
    }
}

/// Adds a job if the ticket has another assignee than the one that was announced.
fn announce(tx: &mut Transaction<'_>, job_added: &Signal, change: &Change<Ticket>) -> Result<()> {
    let Some(id) = change.key() else { return Ok(()) };
    let assignee = match &change.what {
        Changed::Put(ticket) => ticket.assignee,
        Changed::Deleted(_) | Changed::Dropped => None,
    };
    announce_assignee(tx, job_added, id, assignee)
}

/// Announces what was not announced, of all tickets.
fn announce_all(db: &Db, job_added: &Signal) -> Result<()> {
    for id in db.collection::<Ticket>().keys()? {
        let id = id?;
        db.transact(|tx| {
            let assignee = tx.get::<Ticket>(id)?.and_then(|ticket| ticket.assignee);
            announce_assignee(tx, job_added, id, assignee)
        })?;
    }
    Ok(())
}

fn announce_assignee(
    tx: &mut Transaction<'_>,
    job_added: &Signal,
    id: u64,
    assignee: Option<u64>,
) -> Result<()> {
    let announced: Option<u64> = tx.kv(ANNOUNCED).get(id)?;
    if assignee == announced {
        return Ok(());
    }
    let Some(user) = assignee else { return tx.kv(ANNOUNCED).delete(id).map(drop) };
    tx.kv(ANNOUNCED).put(id, &user)?;
    push(tx, job_added, Task::MailAssignee { user, ticket: id })
}

/// Does the jobs that are due.
pub struct Worker {
    /// The blocking handle: the thread is the worker's own.
    pub db: Db,
    /// Sends the mails.
    pub mailer: Arc<dyn Mailer>,
    /// When to try again.
    pub settings: Arc<Settings>,
    /// Raised when a job was added; ended with the server.
    pub job_added: Signal,
}

impl Worker {
    /// Takes jobs, the longest due first, until the signal is ended. A job that has begun is finished.
    ///
    /// # Errors
    /// What no waiting mends, as for [`Announcer::run`].
    pub fn run(self) -> Result<()> {
        while !self.job_added.is_ended() {
            match self.step() {
                Ok(Duration::ZERO) => {}
                Ok(wait) => self.job_added.wait(wait),
                // `Expired` also while the view of jobs is being built.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Full | ErrorKind::Expired) =>
                {
                    eprintln!("tickets: the worker waits: {error}");
                    self.job_added.wait(PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Does one job if one is due. Returns how long to wait for the next.
    fn step(&self) -> Result<Duration> {
        let Some(job) = self.db.view::<JobsByDue>().first_doc()? else { return Ok(IDLE) };
        let wait = job.due.map_or(IDLE, until);
        if wait > Duration::ZERO {
            return Ok(wait.min(IDLE));
        }
        let done = match self.mail_of(&job.task)? {
            Some(mail) => self.mailer.send(&mail),
            // The user or the ticket was deleted meanwhile: nothing is left to do.
            None => Ok(()),
        };
        match done {
            Ok(()) => drop(self.db.delete::<Job>(job.id)?),
            Err(why) => drop(self.db.modify::<Job>(job.id, |job| {
                job.failures = job.failures.saturating_add(1);
                let is_given_up = job.failures >= self.settings.job_failures_max;
                let delay = self.settings.job_delay.saturating_mul(2u32.saturating_pow(job.failures - 1));
                job.due = (!is_given_up).then(|| later(delay.min(self.settings.job_delay_max)));
                job.last_failure = Some(why.clone());
                Ok(())
            })?),
        }
        Ok(Duration::ZERO)
    }

    fn mail_of(&self, task: &Task) -> Result<Option<Mail>> {
        let (user, id) = match task {
            Task::MailCode { email, code } => {
                let text = format!("{code} is your code. It works once.");
                return Ok(Some(Mail { to: email.clone(), subject: "Your login code".into(), text }));
            }
            Task::MailAssignee { user, ticket } => (*user, *ticket),
        };
        let at = self.db.snapshot()?;
        let (Some(user), Some(ticket)) = (at.get::<User>(user)?, at.get::<Ticket>(id)?) else {
            return Ok(None);
        };
        let subject = format!("Ticket {id} is yours");
        Ok(Some(Mail { to: user.email, subject, text: ticket.title }))
    }
}
