//! Uploads that have no key yet: kept for their user until an operation attaches them, for five minutes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use duramen::blobs::Upload;
use duramen::error::{Code, Error, Result};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::limit::Limits;
use crate::limit::budget::overloaded;

/// Names an upload.
pub(crate) type UploadId = [u8; 16];

/// The uploads of a server.
#[derive(Debug)]
pub(crate) struct KeptUploads {
    by_id: Mutex<HashMap<UploadId, Kept>>,
    places: Arc<Semaphore>,
    lasts: Duration,
}

/// A place for an upload: taken before its first byte, so that no upload is in vain.
#[derive(Debug)]
pub(super) struct UploadPlace {
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Kept {
    upload: Arc<Upload>,
    user: String,
    namespace: String,
    /// Ends it when its time is over.
    ending: JoinHandle<()>,
    _place: UploadPlace,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.ending.abort();
    }
}

impl KeptUploads {
    pub(crate) fn new(limits: &Limits) -> Arc<KeptUploads> {
        let places = Arc::new(Semaphore::new(limits.uploads_kept.min(Semaphore::MAX_PERMITS)));
        Arc::new(KeptUploads { by_id: Mutex::default(), places, lasts: limits.upload_kept })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<UploadId, Kept>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for an upload.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if too many uploads have no key.
    pub(super) fn place(&self) -> Result<UploadPlace> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        place
            .map(|permit| UploadPlace { _permit: permit })
            .map_err(|_| overloaded("place for an upload without a key"))
    }

    /// Keeps an upload for its user.
    ///
    /// # Errors
    /// `System` (E1001) if the system gives no random bytes.
    pub(super) fn keep(
        self: &Arc<Self>,
        upload: Upload,
        user: String,
        namespace: String,
        place: UploadPlace,
    ) -> Result<UploadId> {
        let mut id = [0; 16];
        if getrandom(&mut id, GetRandomFlags::empty()) != Ok(id.len()) {
            return Err(Error::new(Code::System, "the system gives no random bytes for the id of an upload"));
        }
        let (all, lasts): (Weak<KeptUploads>, _) = (Arc::downgrade(self), self.lasts);
        let ending = tokio::spawn(async move {
            sleep(lasts).await;
            if let Some(all) = all.upgrade() {
                all.forget(&id);
            }
        });
        let kept = Kept { upload: Arc::new(upload), user, namespace, ending, _place: place };
        self.lock().insert(id, kept);
        Ok(id)
    }

    /// The upload of a user, to be attached in a namespace.
    ///
    /// # Errors
    /// `InvalidArgument` (E0201) if there is none.
    pub(crate) fn of(&self, id: &[u8], user: &str, namespace: &str) -> Result<Arc<Upload>> {
        let by_id = self.lock();
        let kept = UploadId::try_from(id).ok().and_then(|id| by_id.get(&id));
        match kept.filter(|kept| kept.user == user) {
            Some(kept) if kept.namespace == namespace => Ok(Arc::clone(&kept.upload)),
            Some(kept) => {
                let what = format!(
                    "the upload is for the namespace {:?} of blobs, and not for {namespace:?}",
                    kept.namespace
                );
                Err(Error::invalid(what).with_hint("attach it there, or upload it for this one"))
            }
            None => {
                let what = "there is no such upload: it has a key already, was not attached in time, or the server was started again since";
                Err(Error::invalid(what)
                    .with_hint("upload the bytes again, and attach them within five minutes"))
            }
        }
    }

    /// An upload has its key, or its time is over.
    pub(crate) fn forget(&self, id: &[u8]) {
        let forgotten = UploadId::try_from(id).ok().and_then(|id| self.lock().remove(&id));
        // Outside of the lock: its end may wake the background of the database.
        drop(forgotten);
    }
}
