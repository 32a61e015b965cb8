//! `duramen cluster`: the members of a cluster, as a node's server tells them, and what is done to them.

use duramen::{Document, Value, doc};
use duramen_client::{Address, Client};
use duramen_proto::v1;
use duramen_repl::Detached;

use crate::args::{ClusterArgs, ClusterCommand, DatabaseArgs};
use crate::database;
use crate::failure::{Failure, Result};
use crate::numbers::{counted, grouped};
use crate::output::{Output, align_right, new_table};
use crate::serve::failure_of_node as failure;

/// A member that has not answered for so long is taken for gone.
const GONE_MS: u64 = 2_000;

/// Runs the command.
pub(crate) fn run(args: &ClusterArgs, out: Output) -> Result<()> {
    match &args.what {
        ClusterCommand::Status(args) => status(&args.database, out),
        ClusterCommand::Transfer(args) => {
            at_leader(&args.database)?.transfer_leader(args.node)?;
            done("cluster_transfer", args.node, &format!("node {} leads", args.node), out)
        }
        ClusterCommand::Remove(args) => {
            at_leader(&args.database)?.remove_member(args.node)?;
            done("cluster_remove", args.node, &format!("node {} is removed", args.node), out)
        }
        ClusterCommand::Detach(args) => detach(&args.database, out),
    }
}

fn done(kind: &str, node: u64, said: &str, out: Output) -> Result<()> {
    if out.is_json() { out.object(kind, doc! { "node": node }) } else { out.line(said) }
}

/// Lets a node that is stopped leave its cluster, with its data.
fn detach(args: &DatabaseArgs, out: Output) -> Result<()> {
    if args.at.is_some() {
        return Err(Failure::usage(
            "the directory of a node is detached where it lies",
            "stop the node, and name its directory: duramen cluster detach DB",
        ));
    }
    database::check_path(&args.db)?;
    let detached = duramen_repl::detach(&args.db, database::options(args)).map_err(failure)?;
    let Detached { node, published, undecided, others } = detached;
    if out.is_json() {
        let told = doc! {
            "node": node, "published": published.0, "undecided": undecided, "others": others as u64,
        };
        return out.object("cluster_detach", told);
    }
    let path = args.db.display();
    out.line(&format!("{path} is a plain database again, up to commit {}", grouped(published.0)))?;
    if undecided > 0 {
        let entries = counted(undecided, "later entry");
        out.warning(
            &format!("left out: {entries} of its log, on which the cluster may not have decided"),
            "the other nodes have what was decided",
        );
    }
    if others > 0 {
        out.warning(
            &format!("the cluster still counts node {node}"),
            &format!("at one of the others: duramen cluster remove --at HOST:PORT {node}"),
        );
    }
    Ok(())
}

fn connect(args: &DatabaseArgs) -> Result<Client> {
    let address = args.at.clone().unwrap_or_else(|| Address::Directory(args.db.clone()));
    Ok(Client::connect(&address)?)
}

/// The server of the node that leads: this one, or the one that it names.
fn at_leader(args: &DatabaseArgs) -> Result<Client> {
    let client = connect(args)?;
    client.follow_leader();
    Ok(client)
}

fn status(args: &DatabaseArgs, out: Output) -> Result<()> {
    let client = connect(args)?;
    let told = client.cluster()?;
    // Only the leader knows how far the others are.
    let of_leader = (told.leader != told.node).then(|| {
        client.follow_leader();
        client.cluster().ok().filter(|of_leader| of_leader.leader == of_leader.node)
    });
    let told = of_leader.flatten().unwrap_or(told);
    let verdict = verdict(&told);
    if out.is_json() {
        return out.object("cluster_status", as_json(&told, &verdict));
    }
    out.line(&verdict.says)?;
    if !told.failure.is_empty() {
        out.warning(&format!("node {} takes no more part: {}", told.node, told.failure), "start it again");
    }
    for member in told.members.iter().filter(|member| member.needs_copy) {
        let node = member.node;
        out.warning(
            &format!("node {node} lacks entries that the others have let go of: it copies the state"),
            "it does so by itself, needs room for a second copy, and says if it cannot",
        );
    }
    for member in told.members.iter().filter(|member| member.is_full) {
        out.warning(
            &format!("the disk of node {} is full: it takes nothing that needs room", member.node),
            "make room there; writes go on while a majority has room, and deletes beyond that",
        );
    }
    let mut table = new_table(&["node", "role", "behind", "answered", "peers at", "clients at"]);
    align_right(&mut table, [0, 2, 3]);
    for member in &told.members {
        let behind = member.behind.map_or_else(String::new, grouped);
        let answered =
            member.answered_ms_ago.map_or_else(String::new, |ms| format!("{} ms ago", grouped(ms)));
        let serves = if member.serves.is_empty() { "-" } else { &member.serves };
        table.add_row([
            &member.node.to_string(),
            role_of(member, &told),
            &behind,
            &answered,
            &member.address,
            serves,
        ]);
    }
    out.table(&table)
}

fn role_of(member: &v1::Member, told: &v1::ClusterReply) -> &'static str {
    match (member.node == told.leader, member.votes) {
        (true, _) => "leader",
        (false, true) => "follower",
        (false, false) => "learner",
    }
}

/// What is known of a cluster in a sentence, and how many more members it can lose.
struct Verdict {
    says: String,
    /// `None` if nothing leads, or only a follower was asked.
    spare: Option<usize>,
}

fn verdict(told: &v1::ClusterReply) -> Verdict {
    let voters = told.members.iter().filter(|member| member.votes);
    let (count, learners) =
        (voters.clone().count(), told.members.iter().filter(|member| !member.votes).count());
    let who = match learners {
        0 => counted(count as u64, "voter"),
        _ => format!("{}, {}", counted(count as u64, "voter"), counted(learners as u64, "learner")),
    };
    let head = format!("{who}, commit {} is published", grouped(told.published));
    if told.leader == 0 {
        let says = format!(
            "{head}; node {} hears no leader: nothing is written before a majority of the voters is back",
            told.node
        );
        return Verdict { says, spare: None };
    }
    if told.leader != told.node {
        return Verdict { says: format!("{head}; node {} leads", told.leader), spare: None };
    }
    let is_there = |member: &&v1::Member| {
        let answers = member.answered_ms_ago.is_some_and(|ms| ms < GONE_MS);
        !member.is_full && (member.node == told.node || answers && !member.needs_copy)
    };
    let there = voters.clone().filter(is_there).count();
    let full = voters.filter(|member| member.is_full).count();
    let spare = there.saturating_sub(count / 2 + 1);
    let more = match spare {
        0 if there <= count / 2 && there + full > count / 2 => {
            "no majority has room on its disks: nothing but deletes is written until there is some".to_owned()
        }
        0 if there <= count / 2 => "no majority answers: nothing is written until one is back".to_owned(),
        0 if count == 1 => {
            "one more failure: nothing is written until it is mended; a lost disk loses what was acknowledged"
                .to_owned()
        }
        0 => "one more failure: nothing is written until it is mended, and nothing acknowledged is lost"
            .to_owned(),
        1 => "one more failure: writes go on".to_owned(),
        spare => format!("{spare} more failures: writes go on"),
    };
    Verdict { says: format!("{head}; node {} leads; {more}", told.leader), spare: Some(spare) }
}

fn as_json(told: &v1::ClusterReply, verdict: &Verdict) -> Document {
    let number = |value: Option<u64>| value.map_or(Value::Null, Value::from);
    let members = told.members.iter().map(|member| {
        Value::from(doc! {
            "node": member.node, "role": role_of(member, told), "votes": member.votes,
            "behind": number(member.behind), "needs_copy": member.needs_copy,
            "is_full": member.is_full,
            "answered_ms_ago": number(member.answered_ms_ago),
            "address": member.address.as_str(), "serves": member.serves.as_str(),
        })
    });
    let cluster: String = told.cluster.iter().map(|byte| format!("{byte:02x}")).collect();
    doc! {
        "verdict": verdict.says.as_str(), "spare": number(verdict.spare.map(|spare| spare as u64)),
        "cluster": cluster, "node": told.node, "leader": number((told.leader > 0).then_some(told.leader)),
        "term": told.term, "published": told.published, "failure": told.failure.as_str(),
        "members": members.collect::<Vec<_>>(),
    }
}
