//! D8: the lock is held as long as a thread or a receipt may write.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use duramen_disk::MemDisk;
use duramen_engine::{Background, Code, Durability, Engine, Event, EventHook, Hooks, Options, Result};

const BEGINS: fn(&Event) -> bool = |event| matches!(event, Event::CheckpointBegins);
/// After it no step of that thread writes the log.
const ENDED: fn(&Event) -> bool = |event| matches!(event, Event::Checkpoint { .. });

fn open_with(disk: &MemDisk, hooks: Hooks) -> Result<Engine> {
    let options = Options { checkpoint_log_bytes: Some(1), ..Options::default() };
    Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, hooks)
}

/// Opens it once no other holds the lock.
fn open_when_free(disk: &MemDisk) -> Engine {
    loop {
        match open_with(disk, Hooks::default()) {
            Err(error) if error.code() == Code::DatabaseLocked => thread::yield_now(),
            opened => return opened.unwrap(),
        }
    }
}

/// A handle that is dropped in the hook of an event, in a thread of the engine.
struct DroppedInHook {
    held: Arc<Mutex<Option<Engine>>>,
    is_called: Arc<AtomicBool>,
    is_dropped: Arc<AtomicBool>,
    hook: EventHook,
}

impl DroppedInHook {
    fn new(is_it: fn(&Event) -> bool) -> DroppedInHook {
        let held = Arc::new(Mutex::new(None::<Engine>));
        let (is_called, is_dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (of_hook, called, told) = (Arc::clone(&held), Arc::clone(&is_called), Arc::clone(&is_dropped));
        let hook: EventHook = Arc::new(move |event: &Event| {
            if is_it(event) {
                called.store(true, Ordering::SeqCst);
                if of_hook.lock().unwrap().take().is_some() {
                    told.store(true, Ordering::SeqCst);
                }
            }
        });
        DroppedInHook { held, is_called, is_dropped, hook }
    }

    fn hooks(&self) -> Hooks {
        Hooks { on_event: Some(Arc::clone(&self.hook)), ..Hooks::default() }
    }

    /// Lets a checkpoint come, commits something while the hook waits, and lets it drop the handle.
    fn drop_there<T>(&self, engine: Engine, commit: impl FnOnce(&Engine) -> T) -> T {
        let mut holder = self.held.lock().unwrap();
        engine.transact(Durability::Memory, |tx| tx.create_tree("t", None)).unwrap();
        while !self.is_called.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let committed = commit(&engine);
        *holder = Some(engine);
        drop(holder);
        while !self.is_dropped.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        committed
    }
}

/// D8: an event hook may drop the last handle in a thread of the engine. What that thread still writes it
/// writes before another can open the database.
#[test]
fn the_lock_is_held_while_a_thread_of_the_engine_writes() {
    let (disk, dropped) = (MemDisk::new(1), DroppedInHook::new(BEGINS));
    let engine = open_with(&disk, dropped.hooks()).unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (asker, answers, is_asking) = (disk.clone(), Arc::clone(&asked), AtomicBool::new(false));
    let is_dropped = Arc::clone(&dropped.is_dropped);
    // Called by whatever syncs a file.
    disk.set_blocker(Some(Arc::new(move |_| {
        if is_dropped.load(Ordering::SeqCst) && !is_asking.swap(true, Ordering::SeqCst) {
            let opened = open_with(&asker, Hooks::default()).map(drop);
            answers.lock().unwrap().push(opened.map_err(|error| error.code()));
            is_asking.store(false, Ordering::SeqCst);
        }
    })));
    dropped.drop_there(engine, |_| ());
    while Arc::strong_count(&dropped.hook) > 1 {
        thread::yield_now();
    }
    disk.set_blocker(None);
    let asked = asked.lock().unwrap();
    assert!(asked.len() > 1, "the checkpoint that had begun is written: {asked:?}");
    assert!(asked.iter().all(|answer| *answer == Err(Code::DatabaseLocked)), "{asked:?}");
    assert!(open_when_free(&disk).check().unwrap().is_clean());
}

/// D8: a thread that waits for a receipt writes the log if no other does, also when the last handle is gone.
#[test]
fn the_lock_is_held_for_a_commit_that_is_not_written() {
    let (disk, dropped) = (MemDisk::new(2), DroppedInHook::new(ENDED));
    let engine = open_with(&disk, dropped.hooks()).unwrap();
    let receipt = dropped.drop_there(engine, |engine| {
        engine.transact_and_wait_later(Durability::Memory, |tx| tx.create_tree("later", None)).unwrap().1
    });
    // The thread of the engine has ended.
    while Arc::strong_count(&dropped.hook) > 1 {
        thread::yield_now();
    }
    assert_eq!(open_with(&disk, Hooks::default()).map(drop).unwrap_err().code(), Code::DatabaseLocked);
    let receipt = receipt.waited(Durability::Disk).unwrap();
    let again = open_when_free(&disk);
    assert_eq!(receipt.durability(), Durability::Disk);
    let trees = again.begin().unwrap().trees().unwrap();
    assert!(trees.iter().any(|(name, _)| name == "later"), "{trees:?}");
}

/// D8: a thread that waits for a receipt once the locks are gone must not write.
#[test]
fn a_receipt_that_outlives_the_lock_writes_nothing() {
    let (disk, dropped) = (MemDisk::new(3), DroppedInHook::new(ENDED));
    let engine = open_with(&disk, dropped.hooks()).unwrap();
    let receipt = dropped.drop_there(engine, |engine| {
        let receipt = engine.transact(Durability::Memory, |tx| tx.create_tree("later", None)).unwrap().1;
        drop(engine.transact_and_wait_later(Durability::Memory, |tx| tx.create_tree("last", None)).unwrap());
        receipt
    });
    drop(open_when_free(&disk));
    // Without threads of its own, which would write beside what is compared.
    let options = Options { background: Background::Stepped, ..Options::default() };
    let other = Engine::open(Arc::new(disk.clone()), Path::new("/db"), options, Hooks::default()).unwrap();
    other.transact(Durability::Disk, |tx| tx.create_tree("other", None)).unwrap();
    let before = disk.image_hash();
    // The other thread of the engine may have synced it before the handle was gone.
    let is_durable = receipt.durability() == Durability::Disk;
    let waited = receipt.wait(Durability::Disk).map_err(|error| error.code());
    assert_eq!(waited, if is_durable { Ok(()) } else { Err(Code::OutcomeUnknown) });
    receipt.wait(Durability::Process).unwrap();
    assert_eq!(disk.image_hash(), before);
    assert!(other.check().unwrap().is_clean());
}
