//! The number of this process without a system call each time.
//!
//! It is kept on a page that the kernel zeroes in the child of a fork.

#[cfg(target_os = "linux")]
use std::sync::OnceLock;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(target_os = "linux")]
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The process's number, as [`std::process::id`]; makes a system call only the first time in a process.
///
/// Two processes that live at the same time never have the same number. A forked process can therefore tell
/// that inherited state belongs to its parent.
#[must_use]
#[cfg(target_os = "linux")]
pub fn process_id() -> u32 {
    static NOTE: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    let Some(note) = NOTE.get_or_init(emptied_by_fork) else { return std::process::id() };
    match note.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            note.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

/// The process's number.
#[must_use]
#[cfg(not(target_os = "linux"))]
pub fn process_id() -> u32 {
    std::process::id()
}

/// A number that is zero until it is set, and zero again in a child. `None` if the kernel does not support
/// that.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "a system call; see SAFETY")]
fn emptied_by_fork() -> Option<&'static AtomicU32> {
    let bytes = rustix::param::page_size();
    // SAFETY: a fresh private mapping at a place of the kernel's choice overlaps nothing that Rust knows of.
    let page = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }
    .ok()?;
    // SAFETY: the whole mapping, page aligned, and nothing points into it yet.
    if unsafe { rustix::mm::madvise(page, bytes, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: the same mapping, to which no reference was made.
        let _unmapped = unsafe { rustix::mm::munmap(page, bytes) };
        return None;
    }
    // SAFETY: the mapping is never unmapped from here on, is aligned to a page and filled with zeroes, a
    // valid number, and is accessed only through this type. In a child it is filled with zeroes before the
    // child's first instruction.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}

#[cfg(test)]
mod tests {
    //! The number is right, also in the child of a fork.
    use super::process_id;

    #[test]
    fn a_process_knows_its_number() {
        assert_eq!(process_id(), std::process::id());
        assert_eq!(process_id(), std::process::id());
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[allow(unsafe_code, reason = "a look between fork and exec")]
    fn a_forked_child_is_another_process() {
        use std::os::unix::process::CommandExt;
        let parent = process_id();
        let mut command = std::process::Command::new("true");
        let look = move || {
            let is_own = process_id() == std::process::id() && process_id() != parent;
            if is_own { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
        };
        // SAFETY: the closure loads and stores an atomic number and reads the process's number, nothing else.
        unsafe { command.pre_exec(look) };
        assert!(command.status().unwrap().success());
    }
}
