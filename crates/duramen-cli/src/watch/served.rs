//! `duramen watch --at`: commits as a server tells them.

use std::io::Write as _;
use std::time::Duration;

use duramen_client::{Address, Client, Watched};
use duramen_proto::{change, v1};

use super::{as_json, as_text, check_named};
use crate::args::WatchArgs;
use crate::failure::{FAILED, Failure, Result};
use crate::numbers::counted;
use crate::output::{Output, flush};
use crate::signals::Signals;

/// How long a look at the signals waits for changes.
const REST: Duration = Duration::from_millis(100);

/// Runs the command.
pub(super) fn run(args: &WatchArgs, address: &Address, out: Output) -> Result<()> {
    let client = Client::connect(address)?;
    check_collection(&client, args.collection.as_deref())?;
    let mut watched = client.watch(request(&client, args))?;
    let signals = Signals::watch()?;
    let (mut told, mut position) = (0, None);
    let ended = follow(&mut watched, args, &signals, (&mut told, &mut position), out);
    match signals.received() {
        Some(number) if ended.is_ok() => {
            let go_on = position.map_or(String::new(), |at| format!("; to go on from here: --since {at}"));
            out.note(&format!("{}{go_on}", counted(told, "change")));
            Err(Failure::signal(number))
        }
        _ => ended,
    }
}

fn request(client: &Client, args: &WatchArgs) -> v1::WatchRequest {
    let epoch = client.hello().database_id.slice(..8);
    let after = args.since.map(|seq| v1::Token { epoch, seq, run: 0 });
    let start = match (&after, args.oldest) {
        (Some(_), _) => v1::WatchStart::After,
        (None, true) => v1::WatchStart::Oldest,
        (None, false) => v1::WatchStart::Now,
    };
    v1::WatchRequest {
        start: start.into(),
        after,
        collections: args.collection.iter().cloned().collect(),
        ends: !args.follow,
        ..v1::WatchRequest::default()
    }
}

fn check_collection(client: &Client, wanted: Option<&str>) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let names: Vec<_> = client.collections(Vec::new())?.into_iter().map(|found| found.name).collect();
    check_named(wanted, &names)
}

fn follow(
    watched: &mut Watched,
    args: &WatchArgs,
    signals: &Signals,
    (told, position): (&mut u64, &mut Option<u64>),
    out: Output,
) -> Result<()> {
    let mut stream = out.stream();
    let mut whole = true;
    while signals.received().is_none() {
        let reply = match watched.next_within(REST)? {
            None => {
                flush(&mut stream)?;
                continue;
            }
            Some(None) => break,
            Some(Some(reply)) => reply,
        };
        for message in &reply.changes {
            if args.limit.is_some_and(|limit| *told >= limit) {
                return flush(&mut stream);
            }
            let line = match change::of(message) {
                Ok(change) if out.is_json() => as_json(&change)?,
                Ok(change) => as_text(&change, args.collection.is_none())?,
                // Told where it is missing; later changes follow all the same.
                Err(error) => {
                    flush(&mut stream)?;
                    out.failure(&error.into());
                    whole = false;
                    continue;
                }
            };
            writeln!(stream, "{line}").map_err(|error| Failure::output(&error))?;
            *told += 1;
        }
        *position = reply.position.map(|at| at.seq).or(*position);
        if args.limit.is_some_and(|limit| *told >= limit) {
            break;
        }
    }
    flush(&mut stream)?;
    if whole { Ok(()) } else { Err(Failure::Exit(FAILED)) }
}
