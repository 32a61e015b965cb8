//! Uploads that have no key yet: kept for their user until an operation attaches them, for five minutes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use duramen::blobs::Upload;
use duramen::error::{Code, Error, Result};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::limit::budget::overloaded;

const KEPT: Duration = Duration::from_secs(300);

/// Uploads that are kept at once.
const KEPT_MAX: usize = 1_000;

/// Names an upload.
pub(crate) type UploadId = [u8; 16];

/// The uploads of a server.
#[derive(Debug, Default)]
pub(crate) struct KeptUploads {
    by_id: Mutex<HashMap<UploadId, Kept>>,
}

#[derive(Debug)]
struct Kept {
    upload: Arc<Upload>,
    user: &'static str,
    namespace: String,
    /// Ends it when its time is over.
    ending: JoinHandle<()>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.ending.abort();
    }
}

impl KeptUploads {
    fn lock(&self) -> MutexGuard<'_, HashMap<UploadId, Kept>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an upload for its user.
    ///
    /// # Errors
    /// `Overloaded` (E1103) if too many are kept; `System` (E1001) if the system gives no random bytes.
    pub(super) fn keep(
        self: &Arc<Self>,
        upload: Upload,
        user: &'static str,
        namespace: String,
    ) -> Result<UploadId> {
        let mut id = [0; 16];
        if getrandom(&mut id, GetRandomFlags::empty()) != Ok(id.len()) {
            return Err(Error::new(Code::System, "the system gives no random bytes for the id of an upload"));
        }
        let all: Weak<KeptUploads> = Arc::downgrade(self);
        let ending = tokio::spawn(async move {
            sleep(KEPT).await;
            if let Some(all) = all.upgrade() {
                all.forget(&id);
            }
        });
        let kept = Kept { upload: Arc::new(upload), user, namespace, ending };
        let mut by_id = self.lock();
        if by_id.len() >= KEPT_MAX {
            return Err(overloaded("room for an upload without a key"));
        }
        by_id.insert(id, kept);
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
                let what = "there is no such upload: it has a key already, or was not attached in time";
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
