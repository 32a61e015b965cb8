//! The order in which the system gives threads a processor.

use std::cell::Cell;

/// Threads of scans and of long queries get what point reads and commits leave.
const NICE: i32 = 10;

thread_local! {
    static IS_LOWER: Cell<bool> = const { Cell::new(false) };
}

/// Lowers the priority of this thread, for ever.
pub(crate) fn lower() {
    if !IS_LOWER.replace(true) {
        #[cfg(target_os = "linux")]
        // Each thread has its own there. Where it is refused it is as the others.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    }
}
