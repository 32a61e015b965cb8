//! Large values that are put while disks are full, or while a machine is down, and deleted again.

use std::time::{Duration, Instant};

use duramen::error::{Error, ErrorKind};
use duramen::prelude::*;
use duramen_client::Remote;
use duramen_disk::memory::Random;

use crate::failure::Result;
use crate::machine;

const BALLAST: &str = "ballast";
/// Large values, so that a full disk is met.
const BALLAST_BYTES: usize = 256 << 10;
const BALLAST_MAX: u64 = 200;
/// So many large values are several times what nodes keep.
const BEHIND: u64 = 300;
/// A node that was started serves within this time. It may copy the state first.
const SERVES_WITHIN: Duration = Duration::from_secs(30);
/// A leader whose disk is full lets another node lead within this time.
const MOVES_WITHIN: Duration = Duration::from_secs(12);

/// A client that asks at a machine first.
fn connect(machine: usize) -> duramen::Result<Remote> {
    let begun = Instant::now();
    loop {
        match Remote::connect(&machine::steward(machine).to_string()) {
            Err(_) if begun.elapsed() < SERVES_WITHIN => std::thread::sleep(Duration::from_millis(50)),
            connected => return connected,
        }
    }
}

/// Puts large values until the cluster has no room for more of them, or has taken many, and deletes them all:
/// that must always pass. If a majority `has_room`, none may be refused for long. Returns what happened.
pub(crate) fn press(machine: usize, has_room: bool, random: &mut Random) -> Result<String> {
    let failed = |what: &str, error: &Error| format!("{what} while disks are full: {error:?}");
    let remote = connect(machine).map_err(|error| failed("connecting", &error))?;
    let (mut puts, mut taken) = (0, Instant::now());
    let refused = loop {
        if puts == BALLAST_MAX {
            break false;
        }
        let value: Vec<u64> = (0..BALLAST_BYTES / 8).map(|_| random.bits()).collect();
        match remote.kv(BALLAST).put(puts, &value) {
            Ok(_) => (puts, taken) = (puts + 1, Instant::now()),
            Err(error) if error.kind() == ErrorKind::Full && has_room && taken.elapsed() < MOVES_WITHIN => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) if error.kind() == ErrorKind::Full && !has_room => break true,
            Err(error) => return Err(failed("a put", &error)),
        }
    };
    for key in 0..puts {
        remote.kv(BALLAST).delete(key).map_err(|error| failed("a delete", &error))?;
    }
    Ok(format!("{puts} large values, {}, deleted", if refused { "then refused" } else { "all taken" }))
}

/// Writes more than nodes keep for one that lacks it, asked at a machine, and deletes it again.
pub(crate) fn leave_behind(machine: usize, random: &mut Random) -> Result<String> {
    let failed = |error: Error| format!("while a machine is down: {error:?}");
    let remote = connect(machine).map_err(failed)?;
    for key in 0..BEHIND {
        let value: Vec<u64> = (0..BALLAST_BYTES / 8).map(|_| random.bits()).collect();
        remote.kv(BALLAST).put(key, &value).map_err(failed)?;
    }
    (0..BEHIND).try_for_each(|key| remote.kv(BALLAST).delete(key).map(drop)).map_err(failed)?;
    Ok(format!("{BEHIND} large values are written, and deleted"))
}
