//! Requests with an id for programs that await.
//!
//! The rules are those of [`requests`](crate::requests): this module only waits without a thread.

use std::sync::{Arc, Mutex};

use super::AsyncDb;
use crate::access::transaction::Transaction;
use crate::requests::{self, Answered, Known, Outcome, Request, RequestId};
use crate::store::error::{Code, Result};
use crate::store::{Durability, Receipt};

impl AsyncDb {
    /// Runs a request once, as [`requests::once`](crate::requests::once) does. Waiting for the disk takes no
    /// thread.
    ///
    /// If the future is dropped, whether it ran is found by [`requests::outcome`](crate::requests::outcome),
    /// or by another try.
    ///
    /// # Errors
    /// What the closure returned, and those of a [commit](crate::Error#commits). `RequestTooOld` (E1105),
    /// `RequestCancelled` (E1110), `TooLarge` (E0203) and `InvalidArgument` (E0201) as
    /// [`requests::once`](crate::requests::once).
    pub async fn once(
        &self,
        request: &Request<'_>,
        run: impl FnMut(&mut Transaction<'_>) -> Result<Vec<u8>> + Send + 'static,
    ) -> Result<Answered> {
        let seen = AsyncDb { crew: Arc::clone(&self.crew), db: self.db.seen_by_all() };
        self.start_clock_of_requests().await?;
        let run = Arc::new(Mutex::new(run));
        let (known, is_repeated, receipt) = match seen.try_once(request, &run).await {
            // Old requests may have filled the disk.
            Err(error) if error.code() == Code::DiskFull => {
                self.forget_requests().await?;
                seen.try_once(request, &run).await?
            }
            done => done?,
        };
        if is_repeated {
            self.wait(&receipt, Durability::Disk).await?;
        }
        requests::answered(known, request, is_repeated, receipt)
    }

    /// What has become of a request, as [`requests::outcome`](crate::requests::outcome) settles it. Waiting
    /// for the disk takes no thread.
    ///
    /// If the future is dropped, it may be settled all the same.
    ///
    /// # Errors
    /// Those of a [commit](crate::Error#commits). `RequestTooOld` (E1105) and `InvalidArgument` (E0201) as
    /// [`requests::outcome`](crate::requests::outcome).
    pub async fn outcome(&self, id: RequestId, user: &str) -> Result<Outcome> {
        self.start_clock_of_requests().await?;
        let durable = self.at(Durability::Disk);
        let settle = || {
            let user = user.to_owned();
            durable.transact(move |tx| requests::settle(tx, id, &user))
        };
        let settled = match settle().await {
            Err(error) if error.code() == Code::DiskFull => {
                self.forget_requests().await?;
                settle().await?
            }
            done => done?,
        };
        settled.ok_or_else(|| requests::too_old(id))
    }

    async fn start_clock_of_requests(&self) -> Result<()> {
        if requests::is_clock_started(&self.db) {
            return Ok(());
        }
        self.run(requests::start_clock).await
    }

    async fn forget_requests(&self) -> Result<()> {
        self.run(|db| {
            requests::after_writes(db);
            Ok(())
        })
        .await
    }

    async fn try_once(
        &self,
        request: &Request<'_>,
        run: &Arc<Mutex<impl FnMut(&mut Transaction<'_>) -> Result<Vec<u8>> + Send + 'static>>,
    ) -> Result<(Known, bool, Receipt)> {
        let (request, run) = (request.to_stored(), Arc::clone(run));
        let ((known, is_repeated), receipt) = self
            .transact_with_receipt(move |tx| {
                let mut run = run.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                requests::find_or_run(tx, &request.as_request(), &mut *run)
            })
            .await?;
        Ok((known, is_repeated, receipt))
    }
}
