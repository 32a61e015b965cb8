//! The server: opens the database, starts the background work, serves, and ends all of it in order.

use std::error::Error as StdError;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use duramen::prelude::*;
use duramen::{AsyncDb, ChangeStop};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::jobs::{Announcer, Worker};
use crate::mail::Mailer;
use crate::model::{Attachment, Comment, Job, Ticket, User};
use crate::signal::Signal;
use crate::{App, routes};

/// How long open requests may take after the server was asked to end.
const LAST_REQUESTS: Duration = Duration::from_secs(10);

/// Where the data is, where to listen, lifetimes and limits.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The directory of the database.
    pub database: PathBuf,
    /// The address to listen at; port 0 for one that the system chooses.
    pub address: SocketAddr,
    /// How long a login code is valid.
    pub code_lifetime: Duration,
    /// How long a session lasts.
    pub session_lifetime: Duration,
    /// The longest body of JSON.
    pub json_bytes_max: usize,
    /// The longest attachment.
    pub attachment_bytes_max: u64,
    /// The delay after the first failure of a job. It doubles with each further failure.
    pub job_delay: Duration,
    /// The longest delay.
    pub job_delay_max: Duration,
    /// Failures after which a job is given up.
    pub job_failures_max: u32,
}

impl Settings {
    /// The settings for a team.
    #[must_use]
    pub fn new(database: impl Into<PathBuf>, address: SocketAddr) -> Settings {
        Settings {
            database: database.into(),
            address,
            code_lifetime: Duration::from_secs(10 * 60),
            session_lifetime: Duration::from_secs(30 * 24 * 60 * 60),
            json_bytes_max: 64 * 1024,
            attachment_bytes_max: 1 << 30,
            job_delay: Duration::from_secs(10),
            job_delay_max: Duration::from_secs(60 * 60),
            job_failures_max: 16,
        }
    }
}

/// What starting or stopping can fail with.
pub type ServerError = Box<dyn StdError + Send + Sync>;

/// A running server.
pub struct Server {
    db: AsyncDb,
    address: SocketAddr,
    /// Asks the router to end.
    end: oneshot::Sender<()>,
    serving: JoinHandle<std::io::Result<()>>,
    /// The announcer and the worker, each with a thread of its own.
    background: JoinSet<Result<()>>,
    announcer: ChangeStop,
    signals: [Signal; 2],
}

impl Server {
    /// Opens the database, starts the background work, and listens.
    ///
    /// # Errors
    /// The database cannot be opened, a type does not fit what is stored, or the address is not free.
    pub async fn start(
        settings: Settings,
        mailer: Arc<dyn Mailer>,
    ) -> std::result::Result<Server, ServerError> {
        // Types that no longer fit their documents are found here, not by a request.
        let options = Db::options()
            .collection::<User>()
            .collection::<Ticket>()
            .collection::<Comment>()
            .collection::<Attachment>()
            .collection::<Job>();
        let db = AsyncDb::open_with(options, &settings.database).await?;
        let listener = TcpListener::bind(settings.address).await?;
        let address = listener.local_addr()?;
        let (settings, job_added, stop) = (Arc::new(settings), Signal::default(), Signal::default());

        let signals = [job_added.clone(), stop.clone()];
        let announcing = job_added.clone();
        let announcer = db.run(move |db| Announcer::new(db, announcing, stop)).await?;
        let stopper = announcer.stopper();
        let worker = Worker {
            db: db.blocking().clone(),
            mailer,
            settings: Arc::clone(&settings),
            job_added: job_added.clone(),
        };
        let mut background = JoinSet::new();
        background.spawn_blocking(|| announcer.run());
        background.spawn_blocking(|| worker.run());

        let app = App { db: db.clone(), settings, job_added };
        let (end, ended) = oneshot::channel::<()>();
        let serve = axum::serve(listener, routes(app)).with_graceful_shutdown(async { drop(ended.await) });
        let serving = tokio::spawn(serve.into_future());
        Ok(Server { db, address, end, serving, background, announcer: stopper, signals })
    }

    /// The address that it listens at.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until background work has ended by itself, which only an error or a panic does.
    pub async fn failed(&mut self) -> ServerError {
        match self.background.join_next().await {
            Some(Ok(Err(error))) => error.into(),
            Some(Err(panic)) => panic.into(),
            Some(Ok(Ok(()))) | None => "the background work has ended".into(),
        }
    }

    /// Answers the open requests, finishes the job at hand, and closes the database.
    ///
    /// The directory can be opened again once the runtime has ended, too: tasks of connections have handles
    /// of the database for a moment longer.
    ///
    /// # Errors
    /// The first failure. What follows it is ended all the same.
    pub async fn stop(mut self) -> std::result::Result<(), ServerError> {
        drop(self.end);
        let served = tokio::time::timeout(LAST_REQUESTS, self.serving).await;
        // Before the database is closed: the worker still has to note the mail that it has sent.
        self.announcer.stop();
        self.signals.iter().for_each(Signal::end);
        let mut background = Ok(());
        while let Some(ended) = self.background.join_next().await {
            background = background.and(ended.map_err(ServerError::from).and_then(|done| Ok(done?)));
        }
        self.db.close().await?;
        background?;
        served.map_err(|_| "requests were still open after the time for the last ones")???;
        Ok(())
    }
}
