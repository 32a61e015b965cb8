//! A cluster whose nodes lie on drives that lose power, as `powercut` makes them: what runs before the cut,
//! until the cut, and on what survives.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use tokio::runtime::Handle;

use crate::clients::Load;
use crate::cluster::{Cluster, LOOK};
use crate::failure::{Result, failed};
use crate::history::History;
use crate::machine::{self, Kit};
use crate::{command, identity, judgement, kit};

#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The program under test
    #[arg(long)]
    duramen: PathBuf,
    /// A directory for certificates
    #[arg(long)]
    work: PathBuf,
    /// The directories of the nodes, one for each
    #[arg(long, num_args = 1.., required = true)]
    at: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Use {
    #[command(flatten)]
    place: Place,
    /// The file with the clients' history
    #[arg(long)]
    history: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    of: Use,
    /// Machines, from 1, that start before the others and go on without them
    #[arg(long, value_delimiter = ',')]
    first: Vec<usize>,
    /// A machine, from 1, whose drive lied: its node may find out and end, and is replaced then
    #[arg(long)]
    lied_to: Option<usize>,
}

impl Place {
    fn cluster(&self, is_in_memory: bool, handle: &Handle) -> Result<Cluster> {
        let work = self.work.canonicalize().map_err(|error| failed("find", &self.work.display(), &error))?;
        let kit = Kit { is_in_memory, ..Kit::of(&self.duramen, work)? };
        Cluster::beside(&Arc::new(kit), self.at.clone(), handle)
    }
}

/// Founds a cluster.
pub(crate) fn found(place: &Place) -> ExitCode {
    let prepare = |handle: &Handle| {
        fs::create_dir_all(&place.work).map_err(|error| failed("make", &place.work.display(), &error))?;
        let hosts = (0..place.at.len()).map(|number| machine::peers(number).ip().to_string());
        kit::certificates(&place.work, hosts.collect())?;
        place.cluster(false, handle)
    };
    command::in_room(&place.work, prepare, |mut cluster| {
        cluster.begin()?;
        cluster.stop_and_check()?;
        Ok(Vec::new())
    })
}

/// Uses it until this process is killed.
pub(crate) fn load(args: &Use) -> ExitCode {
    let prepare = |handle: &Handle| args.place.cluster(false, handle);
    command::in_room(&args.place.work, prepare, |mut cluster| {
        let file = OpenOptions::new().create(true).append(true).open(&args.history);
        let file = file.map_err(|error| failed("open", &args.history.display(), &error))?;
        let load = Load::keeping(cluster.machines.len(), History::kept_in(file));
        start(&mut cluster, |_| true)?;
        // For ever: what ends by itself is wrong.
        load.beside(args.seed, || {
            loop {
                cluster.none_has_ended()?;
                if let Some(what) = load.wrong().into_iter().next() {
                    return Err(what);
                }
                std::thread::sleep(LOOK);
            }
        })
    })
}

/// Judges what survived.
pub(crate) fn check(args: &CheckArgs) -> ExitCode {
    let prepare = |handle: &Handle| {
        let text = fs::read_to_string(&args.of.history);
        let text = text.map_err(|error| failed("read", &args.of.history.display(), &error))?;
        let (history, last_id) = History::after(&text)?;
        // What survives is mounted from images in memory.
        Ok((args.of.place.cluster(true, handle)?, history, last_id))
    };
    command::in_room(&args.of.place.work, prepare, |(mut cluster, history, last_id)| {
        let (happened, unknown) = history.counts();
        println!("acknowledged before the cut: {happened}; of unknown outcome: {unknown}");
        let load = Load::after(cluster.machines.len(), history, last_id);
        let goes_on = load.beside(args.of.seed, || {
            let is_first = |number: usize| args.first.contains(&(number + 1));
            if !args.first.is_empty() {
                start(&mut cluster, is_first)?;
                load.until_writes(&mut cluster)?;
            }
            start(&mut cluster, |number| !is_first(number))?;
            if let Some(machine) = args.lied_to.map(|number| number - 1) {
                match identity::known(machine, &mut cluster)? {
                    Some(code) => {
                        println!("fenced: {code}");
                        cluster.machines[machine].lose_disk()?;
                        cluster.replace(machine)?;
                    }
                    None => println!("not fenced"),
                }
            }
            cluster.wait_until_whole()?;
            load.until_writes(&mut cluster)
        });
        let judged = goes_on.and_then(|()| judgement::of(&load, &mut cluster));
        let mut wrong = load.wrong();
        wrong.extend(judged.unwrap_or_else(|why| vec![why]));
        Ok(wrong)
    })
}

fn start(cluster: &mut Cluster, is_meant: impl Fn(usize) -> bool) -> Result<()> {
    let meant = cluster.machines.iter_mut().filter(|machine| is_meant(machine.number));
    meant.into_iter().try_for_each(|machine| machine.start(&[]))
}
