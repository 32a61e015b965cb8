//! The attackers: a process of its own, with one thread for all of them.

use std::sync::Arc;
use std::time::Duration;

use duramen_proto::discovery;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use super::address;
use super::manner::{Attacker, Made, Manner, Target};
use super::wire::Certificate;
use crate::{Wrong, wrong};

/// The attackers of `hostile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Attack {
    #[command(flatten)]
    of: crate::Of,
    #[arg(long)]
    token: String,
    #[arg(long)]
    connections: u64,
    #[arg(long)]
    new_a_second: u64,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    manner: Option<Manner>,
}

/// Attacks until the input ends; prints how many connections were made, and how many there were at once.
pub(crate) fn run(args: &Attack) -> Result<(), Wrong> {
    let path = &args.of.db;
    let target = Arc::new(Target {
        socket: discovery::socket_of(path),
        address: address(path)?,
        trust: Certificate::in_directory(path).trust()?,
        token: args.token.clone(),
    });
    let (made, gate) = (Arc::new(Made::default()), Arc::new(Gate::new(args.new_a_second)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| wrong(format!("the attackers: {error}")))?;
    for number in 0..args.connections {
        let mut attacker = Attacker::new((&target, &made), number, args.manner, args.seed);
        let gate = Arc::clone(&gate);
        runtime.spawn(async move {
            loop {
                gate.wait().await;
                // The server closes it, or refuses it: then comes the next.
                let _ = attacker.attack().await;
                attacker.rest().await;
            }
        });
    }
    // Nothing comes: it ends when the other process does.
    let input = || std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    let _ = runtime.block_on(runtime.spawn_blocking(input));
    println!("{} {}", made.all(), made.most_open());
    match made.missing(args.connections) {
        Some(manner) if args.manner.is_none() => Err(wrong(format!("no connection was {manner:?}"))),
        _ => Ok(()),
    }
}

/// Lets so many through in a second.
struct Gate {
    next: Mutex<Instant>,
    every: Duration,
}

impl Gate {
    fn new(a_second: u64) -> Gate {
        let a_second = u32::try_from(a_second.max(1)).unwrap_or(u32::MAX);
        Gate { next: Mutex::new(Instant::now()), every: Duration::from_secs(1) / a_second }
    }

    /// Waits for a turn.
    async fn wait(&self) {
        let turn = {
            let mut next = self.next.lock().await;
            let turn = (*next).max(Instant::now());
            *next = turn + self.every;
            turn
        };
        sleep_until(turn).await;
    }
}
