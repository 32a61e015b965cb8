//! Agents on threads: each takes the next open plan, until there is none or an agent has failed.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use super::generator::Data;
use super::plans::Step;
use super::ratings::Ratings;
use super::shop::Store;
use super::shopper::{Done, Shopper};
use crate::engine::Result;

/// Follows all plans. Returns the results, and the seconds from the first step to the last.
///
/// # Errors
/// The first error of an agent.
pub(super) fn follow(
    store: &dyn Store,
    data: &Data,
    ratings: &Ratings,
    plans: &[Vec<Step>],
    agents: usize,
) -> Result<(Done, f64)> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let ready = Barrier::new(agents + 1);
    let agent = || {
        let shop = store.shop();
        // An agent that failed to connect still comes to the barrier; otherwise the others would wait for
        // ever.
        ready.wait();
        let mut shopper = Shopper::new(shop?, data, ratings);
        while !failed.load(Ordering::Relaxed) {
            let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            shopper.follow(plan).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(shopper.done())
    };
    std::thread::scope(|scope| {
        let agent = &agent;
        let started: Vec<_> = (0..agents).map(|_| scope.spawn(agent)).collect();
        ready.wait();
        let begun = Instant::now();
        let joined: Vec<Result<Done>> =
            started.into_iter().map(|agent| agent.join().map_err(|_| "an agent panicked")?).collect();
        let seconds = begun.elapsed().as_secs_f64();
        let all = joined
            .into_iter()
            .try_fold(Done::default(), |all, one| Ok::<_, crate::engine::Failure>(all.and(one?)))?;
        Ok((all, seconds))
    })
}
