//! The order in which the system gives threads a processor.

use std::cell::Cell;

/// By how much: threads of scans, downloads, backups and long queries get what point reads and commits leave.
#[cfg(target_os = "linux")]
const BY: i32 = 10;

thread_local! {
    static IS_LOWER: Cell<bool> = const { Cell::new(false) };
}

/// Lowers the priority of this thread, once. It stays lower.
pub(crate) fn lower() {
    if !IS_LOWER.replace(true) {
        #[cfg(target_os = "linux")]
        {
            // Each thread has its own there. Where it is refused the thread is as the others.
            let thread = Some(rustix::thread::gettid());
            let now = rustix::process::getpriority_process(thread);
            let _ = now.and_then(|now| rustix::process::setpriority_process(thread, now + BY));
        }
    }
}
