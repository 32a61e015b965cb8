//! Three processes with TLS between them: every write that was acknowledged is there, whichever is killed.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use duramen::prelude::*;
use duramen::tuple::Element;
use duramen_client::{Freshness, Remote};
use duramen_proto::v1;
use rustix::process::{Pid, Signal, kill_process};

use crate::loop_device::{mount_a, run};
use crate::runner::{Scratch, skipped, start};

/// A served node.
struct Process {
    name: &'static str,
    child: Child,
    node: u64,
    serves: String,
    arguments: Vec<String>,
}

/// A port that is free now.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

impl Process {
    fn begin(scratch: &Scratch, name: &'static str, serves: String, arguments: Vec<String>) -> Process {
        let words: Vec<&str> =
            ["serve", name, "--json"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        let mut child = start(&mut scratch.command_as_is(&words)).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let told: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|why| panic!("{name}: {why}: {line:?}"));
        let node = told["node"].as_u64().unwrap_or_else(|| panic!("no node: {line}"));
        Process { name, child, node, serves, arguments }
    }

    fn kill(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::KILL).unwrap();
        self.child.wait().unwrap();
    }

    fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it warns of this. Returns all that it has warned of.
    fn warns(&mut self, of: &str) -> String {
        let (send, says) = channel();
        let stderr = BufReader::new(self.child.stderr.take().unwrap());
        std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let mut told = String::new();
        while !told.contains(of) {
            let line = says.recv_timeout(Duration::from_secs(60));
            told += &line.unwrap_or_else(|_| panic!("{of:?} in time, after {told:?}"));
        }
        told
    }

    fn again(&mut self, scratch: &Scratch) {
        *self = Process::begin(scratch, self.name, self.serves.clone(), std::mem::take(&mut self.arguments));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An authority, and a certificate that all nodes show.
fn certificates(scratch: &Scratch) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    scratch.write("ca.pem", authority.self_signed(&authority_key).unwrap().pem());
    let issuer = Issuer::new(authority, authority_key);
    for (name, of) in [("node", "127.0.0.1"), ("stranger", "127.0.0.1")] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![of.to_owned()]).unwrap();
        // A stranger is of no authority that counts.
        let certificate = match name {
            "node" => params.signed_by(&key, &issuer).unwrap().pem(),
            _ => params.self_signed(&key).unwrap().pem(),
        };
        scratch.write(&format!("{name}.pem"), certificate);
        scratch.write(&format!("{name}.key"), key.serialize_pem());
    }
}

struct Cluster {
    scratch: Scratch,
    nodes: Vec<Process>,
}

impl Cluster {
    /// Three nodes; `None` if the test of `what` is skipped.
    fn on_a_disk(what: &str) -> Option<Cluster> {
        let scratch = Scratch::new();
        if scratch.lies_in_memory() {
            skipped(&format!(
                "{what} — the target directory lies in memory, and they acknowledge at level disk"
            ));
            return None;
        }
        Some(Cluster::begin(scratch))
    }

    fn begin(scratch: Scratch) -> Cluster {
        certificates(&scratch);
        let mut cluster = Cluster { scratch, nodes: Vec::new() };
        for name in ["a", "b", "c"] {
            let (serves, peers) = (free(), free());
            let joins = cluster.nodes.first().map(|first| first.arguments[1].clone());
            let begin = match &joins {
                Some(at) => ["--join", at],
                None => ["--cluster", "init"],
            };
            let arguments = ["--peer-listen", &peers, "--listen", &serves, "--no-auth"]
                .into_iter()
                .chain(["--peer-cert", "node.pem", "--peer-key", "node.key", "--peer-ca", "ca.pem"])
                .chain(begin)
                .chain(["--keep-log", "1"])
                .map(str::to_owned)
                .collect();
            let process = Process::begin(&cluster.scratch, name, serves, arguments);
            cluster.nodes.push(process);
        }
        cluster
    }

    fn status(&self, at: &str) -> serde_json::Value {
        let printed = self.scratch.ok(&["cluster", "status", "--at", at, "--json"]);
        serde_json::from_str(&printed).unwrap()
    }

    /// Waits until a node tells this of the cluster.
    fn wait_for(
        &self,
        at: usize,
        what: &str,
        is_so: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let begun = Instant::now();
        loop {
            let status = self.status(&self.nodes[at].serves);
            if is_so(&status) {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "in time: {what}, not {status}");
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    fn at_node(&self, node: u64) -> usize {
        self.nodes.iter().position(|process| process.node == node).unwrap()
    }
}

/// A program writes through a follower while nodes that lead are killed and come back. It sees no error,
/// and no write is lost or done twice.
#[test]
fn a_program_loses_no_write_while_each_node_is_killed() {
    let Some(mut cluster) = Cluster::on_a_disk("three nodes") else { return };
    cluster.wait_for(0, "three vote", |status| status["spare"] == 1);
    let remote = Remote::connect(&cluster.nodes[1].serves).unwrap();
    let (mut count, mut longest) = (0_i64, Duration::ZERO);
    let mut write = |times: i64| {
        for _ in 0..times {
            let begun = Instant::now();
            assert_eq!(remote.kv("counts").increment("a", 1).unwrap(), count + 1);
            remote.transact(|tx| tx.kv("writes").put(count, &count)).unwrap();
            longest = longest.max(begun.elapsed());
            count += 1;
        }
    };
    write(20);
    for _ in 0..3 {
        let leader =
            cluster.wait_for(0, "a node leads", |status| status["spare"] == 1)["leader"].as_u64().unwrap();
        let killed = cluster.at_node(leader);
        cluster.nodes[killed].kill();
        write(20);
        cluster.nodes[killed].again(&cluster.scratch);
        write(5);
        cluster.wait_for(killed, "it has caught up", |status| status["spare"] == 1);
    }
    println!("the longest two writes took {longest:?}");
    for process in &cluster.nodes {
        let at_node = Remote::connect(&process.serves).unwrap();
        assert_eq!(at_node.kv("counts").get::<i64>("a").unwrap(), Some(count), "node {}", process.node);
        for n in 0..count {
            assert_eq!(at_node.kv("writes").get::<i64>(n).unwrap(), Some(n), "node {}", process.node);
        }
    }
}

/// Clients that run nothing but closures go to the node that leads, whichever they have connected to.
#[test]
fn closures_go_to_the_node_that_leads() {
    let Some(cluster) = Cluster::on_a_disk("closures at followers") else { return };
    cluster.wait_for(0, "three vote", |status| status["spare"] == 1);
    let remotes: Vec<Remote> =
        cluster.nodes.iter().map(|node| Remote::connect(&node.serves).unwrap()).collect();
    for (turn, leads) in [0, 1, 2, 0].into_iter().enumerate() {
        if turn > 0 {
            let node = cluster.nodes[leads].node;
            let at = &cluster.nodes[0].serves;
            cluster.scratch.ok(&["cluster", "transfer", "--at", at, &node.to_string()]);
            cluster.wait_for(leads, "it leads", |status| status["spare"] == 1);
        }
        for (number, remote) in remotes.iter().enumerate() {
            let key = format!("{turn} {number}");
            let begun = Instant::now();
            remote.transact(|tx| tx.kv("closures").put(key.as_str(), &1)).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(15), "in time: {key}");
        }
    }
}

/// Without a majority a node reads what it has for those that allow it, and refuses the others. With one, a
/// read of any state that names a commit waits for it.
#[test]
fn older_states_are_read_by_those_that_allow_it() {
    let Some(mut cluster) = Cluster::on_a_disk("reads of older states") else { return };
    cluster.wait_for(0, "three vote", |status| status["spare"] == 1);
    let writer = Remote::connect(&cluster.nodes[0].serves).unwrap();
    let reader = Remote::connect(&cluster.nodes[2].serves).unwrap();
    reader.set_freshness(Freshness::Any);
    for number in 1..=40_i64 {
        let (_, receipt) =
            writer.transact_with_receipt(|tx| tx.kv("counts").put("a", &number).map(drop)).unwrap();
        let key = Some(duramen_proto::key::of(&[Element::Text("a".into())]));
        let get = v1::KeyValueKey { namespace: "counts".to_owned(), key };
        let reads = vec![v1::Read { kind: Some(v1::read::Kind::GetKeyValue(get)) }];
        let (at_least, form) = (receipt.at, v1::DocumentForm::Json.into());
        let request = v1::ReadRequest { reads, at_least, form, ..v1::ReadRequest::default() };
        let read = reader.client().read(request).unwrap();
        let json = Some(v1::value::Form::Json(number.to_string()));
        let value = Some(v1::Value { form: json });
        let found = Some(v1::read_result::Kind::Value(v1::FoundValue { value }));
        assert_eq!(read.results[0].kind, found, "number {number}");
    }
    let at = cluster.nodes[2].serves.clone();
    cluster.scratch.write("orders.csv", "id,city\n1,Rome\n");
    cluster.scratch.ok(&["import", "--at", &at, "orders.csv", "-c", "orders", "--key", "id"]);
    let order = |scratch: &Scratch, more: &[&str]| {
        let words = ["get", "--at", &at, "-c", "orders", "--key", "1", "--json"];
        scratch.run(&[&words[..], more].concat())
    };
    // The first of them sees the newest state.
    for age in ["0", "250", "3s", "10m", "any"] {
        let read = order(&cluster.scratch, &["--max-age", age]);
        assert!(read.stdout.contains("Rome"), "{age}: {read:?}");
    }
    for wrong in ["", "-1", "1d", "soon", "99999999999999999999"] {
        assert_eq!(order(&cluster.scratch, &["--max-age", wrong]).code, Some(2), "{wrong:?}");
    }
    cluster.nodes[0].kill();
    cluster.nodes[1].kill();
    for allowed in ["10m", "any"] {
        let read = order(&cluster.scratch, &["--max-age", allowed]);
        assert!(read.stdout.contains("Rome"), "{allowed}: {read:?}");
    }
    for (refused, code) in [(&["--max-age", "0"][..], "E1203"), (&[], "E1202")] {
        let read = order(&cluster.scratch, refused);
        assert!(read.stdout.contains(code) || read.stderr.contains(code), "{refused:?}: {read:?}");
    }
}

/// A node that was away while more was written than the others keep stops serving, copies the state, and
/// serves again at its address, as the node that it was.
#[test]
fn a_node_that_lacks_too_much_copies_the_state_and_serves_again() {
    let Some(mut cluster) = Cluster::on_a_disk("a node that copies the state") else { return };
    cluster.wait_for(0, "three vote", |status| status["spare"] == 1);
    cluster.nodes[2].stop();
    let remote = Remote::connect(&cluster.nodes[0].serves).unwrap();
    let large: Vec<u64> =
        (0..1 << 17).map(|number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for key in 0..80 {
        remote.kv("large").put(key, &large).unwrap();
    }
    let node = cluster.nodes[2].node;
    let lacks = |status: &serde_json::Value| {
        let members = status["members"].as_array().unwrap();
        members.iter().any(|member| member["node"] == node && member["needs_copy"] == true)
    };
    cluster.wait_for(0, "the others do not have what it lacks", lacks);
    cluster.nodes[2].again(&cluster.scratch);
    assert_eq!(cluster.nodes[2].node, node);
    cluster.wait_for(0, "it has the state", |status| status["spare"] == 1);
    assert!(cluster.scratch.path("c").join("incoming").exists(), "by a copy");
    remote.kv("large").put(80, &large).unwrap();
    let at_node = Remote::connect(&cluster.nodes[2].serves).unwrap();
    for key in 0..=80 {
        assert_eq!(at_node.kv("large").get::<Vec<u64>>(key).unwrap().as_ref(), Some(&large), "key {key}");
    }
    cluster.nodes[2].stop();
    cluster.scratch.ok(&["check", "c"]);
}

/// A node whose disk has no room for the copy that it needs goes on serving what it has.
#[test]
fn a_node_without_room_for_a_copy_goes_on_serving() {
    let Some(mut cluster) = Cluster::on_a_disk("a node without room for a copy") else { return };
    let Some(mounted) = mount_a(&cluster.scratch, "ext4", &["-q", "-F", "-m", "0"], 96) else { return };
    cluster.wait_for(0, "three vote", |status| status["spare"] == 1);
    cluster.nodes[2].stop();
    let (from, to) = (cluster.scratch.path("c"), mounted.at.join("c"));
    run("cp", &["--archive", from.to_str().unwrap(), to.to_str().unwrap()]).unwrap();
    cluster.nodes[2].name = "mounted/c";
    let remote = Remote::connect(&cluster.nodes[0].serves).unwrap();
    let large: Vec<u64> =
        (0..1 << 17).map(|number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    for key in 0..100 {
        remote.kv("large").put(key, &large).unwrap();
    }
    let node = cluster.nodes[2].node;
    let lacks = |status: &serde_json::Value| {
        let members = status["members"].as_array().unwrap();
        members.iter().any(|member| member["node"] == node && member["needs_copy"] == true)
    };
    cluster.wait_for(0, "the others do not have what it lacks", lacks);
    cluster.nodes[2].again(&cluster.scratch);
    let told = cluster.nodes[2].warns("has not copied the state that it lacks");
    assert!(told.contains("are free at") && !told.contains("it stops serving"), "{told}");
    let reader = Remote::connect(&cluster.nodes[2].serves).unwrap();
    reader.set_freshness(Freshness::Any);
    assert_eq!(reader.kv("large").get::<Vec<u64>>(99).unwrap(), None);
    assert!(!to.join("incoming").exists(), "it has not begun");
    cluster.nodes[2].stop();
}

/// An operator sees which node leads, lets another one lead, and removes members. A node with a certificate
/// of another authority does not join, and one that is started at another address is refused.
#[test]
fn operators_see_hand_over_and_remove() {
    let Some(mut cluster) = Cluster::on_a_disk("operators of a cluster") else { return };
    let status = cluster.wait_for(0, "three vote", |status| status["spare"] == 1);
    assert!(status["verdict"].as_str().unwrap().contains("one more failure: writes go on"), "{status}");
    let (first, second) = (cluster.nodes[0].node, cluster.nodes[1].node);
    assert_eq!(status["leader"], first);
    // Of the two that would be left one does not answer.
    cluster.nodes[2].kill();
    cluster.wait_for(0, "one is gone", |status| status["spare"] == 0);
    let remove = ["cluster", "remove", "--at", &cluster.nodes[0].serves, &second.to_string()];
    let refused = cluster.scratch.run(&remove);
    assert!(refused.stderr.contains("that is no majority"), "{}", refused.stderr);
    cluster.nodes[2].again(&cluster.scratch);
    cluster.wait_for(0, "it is back", |status| status["spare"] == 1);
    cluster.scratch.ok(&["cluster", "transfer", "--at", &cluster.nodes[0].serves, &second.to_string()]);
    cluster.wait_for(2, "the second leads", |status| status["leader"] == second);
    // Over a socket no other node is reached: the error says where the leader is.
    let refused = cluster.scratch.run(&["user", "add", "c", "ann"]);
    let leader = format!("serves {}", cluster.nodes[1].serves);
    assert!(refused.stderr.contains("E1201") && refused.stderr.contains(&leader), "{}", refused.stderr);
    // Asked at a follower, done by the leader.
    cluster.scratch.ok(&["cluster", "remove", "--at", &cluster.nodes[2].serves, &first.to_string()]);
    let status =
        cluster.wait_for(1, "two are left", |status| status["members"].as_array().unwrap().len() == 2);
    assert_eq!(status["spare"], 0);
    let refused = cluster.scratch.run(&["cluster", "remove", "--at", &cluster.nodes[1].serves, "99"]);
    assert!(refused.stderr.contains("99 is no member"), "{}", refused.stderr);
    // The one that was removed ends, also when it is started again.
    cluster.nodes[0].child.wait().unwrap();
    let again = cluster.nodes[0].arguments.iter().map(String::as_str);
    let refused = cluster.scratch.run(&["serve", "a"].into_iter().chain(again).collect::<Vec<_>>());
    assert!(refused.stderr.contains("E1205"), "{}", refused.stderr);

    // The third at another address than the members know.
    cluster.nodes[2].stop();
    let mut elsewhere = cluster.nodes[2].arguments.clone();
    elsewhere[1] = free();
    let words: Vec<&str> = ["serve", "c"].into_iter().chain(elsewhere.iter().map(String::as_str)).collect();
    let refused = cluster.scratch.run(&words);
    assert!(refused.stderr.contains("the others know this node at"), "{}", refused.stderr);
    cluster.nodes[2].again(&cluster.scratch);

    // Another authority's certificate.
    let arguments = ["serve", "d", "--join", &cluster.nodes[1].arguments[1], "--peer-listen", &free()];
    let of_a_stranger =
        ["--peer-cert", "stranger.pem", "--peer-key", "stranger.key", "--peer-ca", "stranger.pem"];
    let mut stranger = cluster.scratch.command_as_is(&[&arguments[..], &of_a_stranger].concat());
    let stranger = start(stranger.stdout(Stdio::null()).stderr(Stdio::piped())).unwrap();
    std::thread::park_timeout(Duration::from_secs(2));
    let status = cluster.status(&cluster.nodes[1].serves);
    assert_eq!(status["members"].as_array().unwrap().len(), 2, "{status}");
    // It tells why it waits, and a signal ends it.
    kill_process(Pid::from_child(&stranger), Signal::TERM).unwrap();
    let said = String::from_utf8(stranger.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("no leader has admitted this node yet"), "{said}");
    assert!(said.contains("it was stopped before it had joined"), "{said}");
    assert!(!cluster.scratch.path("d").exists());
    let own = free();
    let refused = cluster.scratch.run(&["serve", "d", "--join", &own, "--peer-listen", &own]);
    assert!(refused.stderr.contains("is the address of this node"), "{}", refused.stderr);

    // The third goes on by itself, with everything.
    cluster.nodes[2].stop();
    let refused = cluster.scratch.run(&["user", "add", "c", "ann"]);
    assert!(refused.stderr.contains("duramen cluster detach"), "{}", refused.stderr);
    let detached = cluster.scratch.run(&["cluster", "detach", "c"]);
    assert!(
        detached.stdout.contains("c is a plain database again"),
        "{}{}",
        detached.stdout,
        detached.stderr
    );
    assert!(
        detached.stderr.contains("the cluster still counts node"),
        "{}{}",
        detached.stdout,
        detached.stderr
    );
    cluster.scratch.ok(&["user", "add", "c", "ann"]);
}
