//! Commands beside the process that has the database open print what they print without it.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};

use duramen_proto::discovery::Serving;
use rustix::process::{Pid, Signal, kill_process};

use crate::runner::{Ran, Scratch, start};

/// A running `duramen serve`.
pub(crate) struct Serve {
    child: Child,
    /// The address of TCP.
    address: String,
}

impl Serve {
    fn new(scratch: &Scratch) -> Serve {
        Serve::of(scratch, "db")
    }

    /// Serves the database of this name.
    pub(crate) fn of(scratch: &Scratch, name: &str) -> Serve {
        Serve::with(scratch, name, &["--listen", "127.0.0.1:0"])
    }

    /// Serves it with these arguments.
    pub(crate) fn with(scratch: &Scratch, name: &str, arguments: &[&str]) -> Serve {
        let mut command = scratch.command_as_is(&[&["serve", name, "--json"], arguments].concat());
        let mut child = start(command.stdout(Stdio::piped())).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let told: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert_eq!(told["kind"], "serve");
        assert_eq!(told["socket"], format!("{name}/serve.sock"));
        Serve { address: told["addresses"][0].as_str().unwrap().to_owned(), child }
    }

    /// The address of TCP.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it as a service manager does; returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const ROWS: &str = "city,id,n\nBergen,1,30\nOslo,1,NA\nOslo,2,75\nOslo,3,9007199254740993\n";

fn rows() -> Scratch {
    let scratch = Scratch::with_rows(ROWS, &["--key", "city,id", "--sum", "n", "--null", "NA"]);
    scratch.ok(&["view", "add", "db", "-c", "rows", "by_n", "--key", "n", "--sum", "id", "--max", "id"]);
    scratch.write("cities.csv", "city,country\nOslo,NO\nBergen,NO\nRome,IT\n");
    scratch.write("more.csv", "city,id,n\nBergen,1,31\nRome,1,NA\n");
    scratch.write(
        "wider.ndjson",
        "{\"city\":\"Rome\",\"id\":2,\"wide\":true}\n{\"city\":\"Rome\",\"id\":3,\"n\":1}\n",
    );
    scratch.write("repeats.csv", "a,b\n1,x\n2,y\n1,z\n");
    scratch.write("wrong.csv", "city,id,n\nRome,7,1\nRome,x,1\n");
    scratch.write("empty.csv", "a,b\n");
    scratch.ok(&["import", "db", "cities.csv", "-c", "cities", "--key", "city"]);
    scratch.ok(&["reference", "add", "db", "-c", "rows", "city", "cities", "--on-delete", "cascade"]);
    scratch
}

/// In order. Each is run on the same rows: once alone, once beside a server, once with `--at`.
const COMMANDS: &[&[&str]] = &[
    &["count", "db", "-c", "rows"],
    &["count", "db", "-c", "rows", "--prefix", "Oslo", "--json"],
    &["count", "db", "-c", "rows", "--prefix", "Osl"],
    &["count", "db", "-c", "rows", "--view", "by_n", "--from", "30"],
    &["count", "db", "-c", "rows", "--view", "none"],
    &["count", "db", "-c", "rwos"],
    &["get", "db", "-c", "rows", "--key", "Oslo,2"],
    &["get", "db", "-c", "rows", "--key", "Oslo,2", "--json"],
    &["get", "db", "-c", "rows", "--key", "Oslo,7"],
    &["get", "db", "-c", "rows", "--key", "Oslo"],
    &["scan", "db", "-c", "rows"],
    &["scan", "db", "-c", "rows", "--json", "--reverse", "--limit", "2"],
    &["scan", "db", "-c", "rows", "--limit", "0"],
    &["scan", "db", "-c", "rows", "--from", "Oslo,2", "--to", "Oslo,3"],
    &["reduce", "db", "-c", "rows"],
    &["reduce", "db", "-c", "rows", "--prefix", "Oslo", "--json"],
    &["reduce", "db", "-c", "rows", "--view", "by_n"],
    &["reduce", "db", "-c", "rows", "--view", "by_n", "--group", "1", "--json"],
    &["reduce", "db", "-c", "rows", "--view", "by_n", "--group", "2"],
    &["collections", "db"],
    &["find", "db", "-c", "rows"],
    &["find", "db", "-c", "rows", "n>=50", "--json"],
    &["find", "db", "-c", "rows", "city=Oslo", "--order-by", "n:desc", "--limit", "2", "--fields", "id,n"],
    &["find", "db", "-c", "rows", "(", "city=Bergen", "or", "n>=76", ")", "--reverse"],
    &["find", "db", "-c", "rows", "city starts with O", "--count"],
    &["find", "db", "-c", "rows", "n is null", "--count", "--json"],
    &["find", "db", "-c", "rows", "--group-by", "city", "--sum", "n", "--mean", "id", "--quantile", "n:0.5"],
    &["find", "db", "-c", "rows", "--max", "n", "--format", "csv"],
    &["find", "db", "-c", "rows", "--view", "by_n", "30"],
    &["find", "db", "-c", "rows", "--view", "none"],
    &["find", "db", "-c", "rows", "n>=30", "--explain"],
    &["find", "db", "-c", "rows", "city=Oslo", "--explain", "--json"],
    &[
        "find",
        "db",
        "-c",
        "rows",
        "--join",
        "cities=city",
        "cities.country=NO",
        "--fields",
        "id,cities.country",
    ],
    &["find", "db", "-c", "rows", "--left-join", "cities=city", "--format", "ndjson"],
    &["find", "db", "-c", "rows", "--join", "cities=id"],
    &["find", "db", "-c", "rows", "--join", "none=city"],
    &["find", "db", "-c", "rows", "ctiy=Oslo"],
    &["find", "db", "-c", "rows", "n", ">=", "30"],
    &["find", "db", "-c", "rows", "--sum", "city"],
    &["find", "db", "-c", "rows", "--order-by", "code"],
    &["find", "db", "-c", "rows", "--limit", "0"],
    &["find", "db", "-c", "none"],
    &["collections", "db", "--json"],
    &["reduce", "db", "-c", "rows", "--prefix", "Oslo", "--explain"],
    &["reduce", "db", "-c", "rows", "--view", "by_n", "--from", "31", "--group", "1", "--explain", "--json"],
    &["reference", "list", "db"],
    &["export", "db", "-c", "rows"],
    &["export", "db", "-c", "rows", "--from", "Oslo", "--format", "ndjson"],
    &["export", "db", "-c", "rows", "--format", "json", "--prefix", "Rome"],
    &["export", "db", "-c", "none"],
    &["import", "db", "more.csv", "-c", "rows"],
    &["import", "db", "more.csv", "-c", "rows", "--replace", "--null", "NA"],
    &["import", "db", "wider.ndjson", "-c", "rows"],
    &["import", "db", "wider.ndjson", "-c", "rows", "--batch", "1"],
    &["import", "db", "wrong.csv", "-c", "rows", "--batch", "1"],
    &["import", "db", "repeats.csv", "-c", "repeats", "--key", "a"],
    &["import", "db", "repeats.csv", "-c", "repeats", "--key", "a", "--batch", "1", "--replace"],
    &["count", "db", "-c", "repeats"],
    &["import", "db", "repeats.csv", "-c", "repeats", "--key", "b"],
    &["import", "db", "repeats.csv", "-c", "kept", "--assign-id", "id", "--sum", "a", "--threads", "3"],
    &["import", "db", "repeats.csv", "-c", "kept", "--assign-id", "id"],
    &["export", "db", "-c", "kept", "--flatten"],
    &["import", "db", "empty.csv", "-c", "empty", "--key", "a"],
    &["import", "db", "none.csv", "-c", "empty"],
    &["collections", "db"],
    &["scan", "db", "-c", "rows", "--json"],
    &["drop", "db", "-c", "kept", "--yes"],
    &["del", "db", "-c", "rows", "--prefix", "Rome"],
    &["view", "list", "db"],
    &["view", "list", "db", "-c", "rows", "--json"],
    &["view", "add", "db", "-c", "rows", "by_city_n", "--key", "city,n:desc", "--nulls", "--top", "n"],
    &[
        "view",
        "add",
        "db",
        "-c",
        "rows",
        "by_city_n",
        "--key",
        "city,n:desc",
        "--nulls",
        "--top",
        "n",
        "--json",
    ],
    &["view", "add", "db", "-c", "rows", "by_city_n", "--key", "city"],
    &["view", "add", "db", "-c", "rows", "by_city_n", "--key", "city", "--replace"],
    &["view", "add", "db", "-c", "rows", "by_city_n", "--key", "city", "--replace", "--unique"],
    &["view", "add", "db", "-c", "rows", "once", "--key", "city", "--unique"],
    &["view", "add", "db", "-c", "rows", "wrong", "--key", "ctiy"],
    &["view", "list", "db", "-c", "rows"],
    &["view", "rebuild", "db", "-c", "rows", "by_city_n"],
    &["find", "db", "-c", "rows", "n>=31", "--limit", "1"],
    &["view", "drop", "db", "-c", "rows", "by_city_n", "--json"],
    &["view", "drop", "db", "-c", "rows", "by_city_n"],
    &["put", "db", "-c", "rows", r#"{"city": "Rome", "id": 1, "n": 5, "new": [1, {"a": null}]}"#],
    &["put", "db", "-c", "rows", r#"{"city": "Rome", "id": 1, "n": 6}"#, "--json"],
    &["put", "db", "-c", "rows", r#"{"city": "Rome", "n": 6}"#],
    &["put", "db", "-c", "rows", r#"{"city": 7, "id": "x"}"#],
    &["get", "db", "-c", "rows", "--key", "Rome,1", "--json"],
    &["del", "db", "-c", "rows", "--key", "Rome,2"],
    &["del", "db", "-c", "rows", "--key", "Rome,1"],
    &["del", "db", "-c", "rows", "--prefix", "Oslo", "--json"],
    &["del", "db", "-c", "rows", "--all"],
    &["del", "db", "-c", "rows", "--all", "--yes", "--quiet"],
    &["scan", "db", "-c", "rows"],
    &["drop", "db", "-c", "cities"],
    &["drop", "db", "-c", "cities", "--yes"],
    &["drop", "db", "-c", "cities", "--yes", "--json"],
];

fn shown(ran: &Ran) -> String {
    let text = format!("{:?}\n{}{}", ran.code, ran.stdout, ran.stderr);
    // A hint names the server of the command.
    let text = text.replace("--at unix:db/serve.sock", "db");
    // A server has other writers.
    masked(&text.replace("from before or of another writer", "from before this import"))
}

/// A text without the numbers of commits, which also count those of other writers, and the time of an import.
pub(crate) fn masked(text: &str) -> String {
    let mut text = text.to_owned();
    if let Some((start, rest)) = text.split_once(" rows/s)") {
        let start = start.rsplit_once(" in ").expect("the time that an import took").0;
        text = format!("{start}{rest}");
    }
    for before in ["seq ", "\"seq\":"] {
        let mut parts = text.split(before);
        let first = parts.next().expect("at least one").to_owned();
        let rest = parts.map(|part| part.trim_start_matches(char::is_numeric));
        text = rest.fold(first, |text, part| text + before + part);
    }
    text
}

#[test]
fn commands_print_the_same_beside_a_server() {
    let alone = rows();
    let wanted: Vec<String> = COMMANDS.iter().map(|command| shown(&alone.run(command))).collect();

    let beside = rows();
    let serve = Serve::new(&beside);
    for (command, wanted) in COMMANDS.iter().zip(&wanted) {
        assert_eq!(&shown(&beside.run(command)), wanted, "{command:?} beside a server");
    }
    assert_eq!(serve.stop(), Some(0));
    beside.ok(&["check", "db", "--deep"]);

    let by_at = rows();
    let serve = Serve::new(&by_at);
    for (command, wanted) in COMMANDS.iter().zip(&wanted) {
        let command: Vec<&str> = ["--at", "unix:db/serve.sock"]
            .into_iter()
            .chain(command.iter().copied().filter(|word| *word != "db"))
            .collect();
        assert_eq!(&shown(&by_at.run(&command)), wanted, "{command:?}");
    }
    drop(serve);
}

#[test]
fn a_server_is_found_by_its_address_and_a_variable() {
    let scratch = rows();
    let serve = Serve::new(&scratch);
    let token = std::fs::read_to_string(scratch.path("db/serve.token")).unwrap();
    let count = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = scratch.command(args);
        let ran = command.envs(variables.iter().copied()).output().unwrap();
        (ran.status.code(), String::from_utf8_lossy(&ran.stdout).trim().to_owned())
    };
    let four = (Some(0), "4".to_owned());
    let address = serve.address.as_str();
    assert_eq!(count(&["--at", address, "count", "-c", "rows"], &[("DURAMEN_TOKEN", &token)]), four);
    let with_token = format!("duramen://{token}@{address}");
    assert_eq!(count(&["count", "-c", "rows", "--at", &with_token], &[]), four);
    let by_file = format!("duramen://{address}?token_file=db/serve.token");
    assert_eq!(count(&["--at", &by_file, "count", "-c", "rows"], &[]), four);
    assert_eq!(count(&["--at", "db", "count", "-c", "rows"], &[]), four);
    assert_eq!(count(&["count", "-c", "rows"], &[("DURAMEN_AT", "db")]), four);
    // A command that names a database means that one.
    scratch.write("other.csv", "id\n1\n");
    scratch.ok(&["import", "other", "other.csv", "-c", "rows", "--key", "id"]);
    assert_eq!(count(&["count", "other", "-c", "rows"], &[("DURAMEN_AT", "db")]), (Some(0), "1".to_owned()));
    assert_eq!(
        count(&["put", "-c", "rows", r#"{"city": "Rome", "id": 9}"#], &[("DURAMEN_AT", "db")]).0,
        Some(0)
    );
    scratch.ok(&["del", "db", "-c", "rows", "--key", "Rome,9"]);
    for command in
        [&["explain", "E0101"][..], &["find", "other", "-c", "rows"], &["check", "other"], &["man"]]
    {
        assert_eq!(count(command, &[("DURAMEN_AT", "db")]).0, Some(0), "{command:?}");
    }
    // A line of a shell would go to another database than it says.
    let line = format!("put --at {address} -c rows {{\"id\": 2}}");
    assert_eq!(count(&["shell", "other", "-e", &line], &[]).0, Some(2));

    let refused = |args: &[&str], exit: i32, code: &str| {
        let ran = scratch.run(args);
        assert_eq!(ran.code, Some(exit), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(code) && ran.stderr.contains("hint: "), "{args:?}: {}", ran.stderr);
    };
    refused(&["--at", address, "count", "-c", "rows"], 7, "E1101");
    refused(
        &["--at", "duramen://wrong@HOST".replace("HOST", address).as_str(), "count", "-c", "rows"],
        7,
        "E1101",
    );
    refused(&["--at", "unix:none.sock", "count", "-c", "rows"], 6, "E1111");
    refused(&["--at", "other", "count", "-c", "rows"], 6, "E1111");
    refused(&["--at", "http://x", "count", "-c", "rows"], 1, "E0201");
    refused(&["--at", "db", "doctor"], 2, "E0201");
    refused(&["serve", "db"], 4, "E0701");
    refused(&["serve", "other", "--listen", "0.0.0.0:0"], 7, "E1102");
    // A database without a user that could call is not made.
    refused(&["serve", "none", "--listen", "0.0.0.0:0", "--no-tls"], 7, "E1102");
    assert!(!scratch.path("none").exists());
    refused(&["put", "db", "-c", "rows", "{}", "--durability", "memory"], 2, "E0201");
    // A command that only works on files names the process that has them open.
    refused(&["compact", "db"], 4, "E0701");
    serve.signal(Signal::KILL);
}

/// A program that has the database open and serves nothing: the command says by which line it would.
#[test]
fn a_holder_that_serves_nothing_is_told_how_to() {
    let scratch = rows();
    let db = duramen::Db::open(scratch.path("db")).unwrap();
    let ran = scratch.run(&["count", "db", "-c", "rows"]);
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    assert!(ran.stderr.contains("duramen_server::local(&db)?"), "{}", ran.stderr);
    // With that line it answers, and goes on writing.
    let server = duramen_server::local(&db).unwrap();
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "4\n");
    db.documents("rows").put(duramen::doc! { "city": "Rome", "id": 1, "n": 1 }).unwrap();
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "5\n");
    drop(server);
    assert_eq!(scratch.run(&["count", "db", "-c", "rows"]).code, Some(4));
    // The file names a process that runs and does not answer: the command says that, and not how to serve.
    let mut serving = Serving {
        v: 1,
        pid: std::process::id(),
        run: 1,
        database: db.durability_status().database.to_string(),
        socket: true,
        addresses: Vec::new(),
        version: "0".to_owned(),
    };
    scratch.write("db/serve.json", serving.to_text());
    let ran = scratch.run(&["count", "db", "-c", "rows"]);
    assert!(ran.code == Some(6) && ran.stderr.contains("E1111"), "{}", ran.stderr);
    // A process that has ended has left its file.
    let mut ended = start(scratch.command_as_is(&["--version"]).stdout(Stdio::null())).unwrap();
    ended.wait().unwrap();
    serving.pid = ended.id();
    scratch.write("db/serve.json", serving.to_text());
    assert_eq!(scratch.run(&["count", "db", "-c", "rows"]).code, Some(4));
}

/// The count is that of a commit, whatever the writer does meanwhile, and neither is refused.
#[test]
fn a_count_beside_a_writer_is_right_at_a_commit() {
    let scratch = rows();
    let db = duramen::Db::open(scratch.path("db")).unwrap();
    let _server = duramen_server::local(&db).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut id = 10;
            // Ten at a time: no count that is right ends with another digit.
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                db.write(|tx| {
                    let rows = duramen::LocalReads::documents(tx, "rows");
                    (id..id + 10)
                        .try_for_each(|id| rows.put(duramen::doc! { "city": "Rome", "id": id, "n": 1 }))
                })
                .unwrap();
                id += 10;
            }
            (id - 10) as u64
        });
        for _ in 0..10 {
            let count: u64 = scratch.ok(&["count", "db", "-c", "rows"]).trim().parse().unwrap();
            assert_eq!(count % 10, 4);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let written = writer.join().unwrap();
        assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), format!("{}\n", written + 4));
    });
}

/// Files of the server of another database, copied with a directory, do not lead to that one.
#[test]
fn a_server_of_another_database_is_not_asked() {
    let scratch = rows();
    let serve = Serve::new(&scratch);
    scratch.write("other.csv", "id\n1\n");
    scratch.ok(&["import", "other", "other.csv", "-c", "rows", "--key", "id"]);
    for name in ["serve.json", "serve.sock"] {
        std::os::unix::fs::symlink(scratch.path("db").join(name), scratch.path("other").join(name)).unwrap();
    }
    let ran = scratch.run(&["--at", "other", "count", "-c", "rows"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("another database"), "{}", ran.stderr);
    drop(serve);
}

/// A killed server leaves its files behind: the next server replaces them.
#[test]
fn what_a_killed_server_leaves_is_replaced() {
    let scratch = rows();
    let serve = Serve::new(&scratch);
    serve.signal(Signal::KILL);
    drop(serve);
    assert!(scratch.path("db/serve.sock").exists());
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "4\n");
    let serve = Serve::new(&scratch);
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]), "4\n");
    assert_eq!(serve.stop(), Some(0));
    assert!(!scratch.path("db/serve.sock").exists());
}

/// The commands of README.md, on January's flights: the words of each, without `duramen` and the database.
fn readme_commands() -> Vec<Vec<String>> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let lines = readme.lines().filter_map(|line| line.strip_prefix("duramen "));
    let words = |line: &str| {
        let words = line.split_whitespace().map(|word| word.trim_matches('\'').to_owned());
        words.filter(|word| word != "flights.duramen").collect::<Vec<_>>()
    };
    lines.map(words).collect()
}

#[test]
fn commands_of_the_readme_print_the_same_by_at() {
    let scratch = Scratch::with_january();
    let commands = readme_commands();
    let with_database = |command: &[String]| {
        let mut words: Vec<&str> = command.iter().map(String::as_str).collect();
        let at = if words[0] == "view" { 2 } else { 1 };
        words.insert(at, "db");
        scratch.run(&words)
    };
    let view = commands.iter().find(|command| command.starts_with(&["view".to_owned(), "add".to_owned()]));
    assert_eq!(with_database(view.unwrap()).code, Some(0));
    let can_be_served =
        |command: &&Vec<String>| ["count", "reduce", "scan", "get"].contains(&command[0].as_str());
    let served: Vec<&Vec<String>> = commands.iter().filter(can_be_served).collect();
    assert!(served.len() >= 6, "{commands:?}");
    let wanted: Vec<String> = served.iter().map(|command| shown(&with_database(command))).collect();
    let serve = Serve::new(&scratch);
    for (command, wanted) in served.iter().zip(&wanted) {
        assert!(wanted.starts_with("Some(0)"), "{command:?}: {wanted}");
        let words: Vec<&str> =
            ["--at", "unix:db/serve.sock"].into_iter().chain(command.iter().map(String::as_str)).collect();
        assert_eq!(&shown(&scratch.run(&words)), wanted, "{command:?} by --at");
        assert_eq!(&shown(&with_database(command)), wanted, "{command:?} beside a server");
    }
    drop(serve);
}

/// Rows as an import by a server gets them, from a pipe that stays open.
fn feed(import: &mut Child, ids: std::ops::Range<u32>) -> std::process::ChildStdin {
    let mut input = import.stdin.take().unwrap();
    // The types are those of the first 10,000 rows: with fewer the import waits for the end.
    for id in ids {
        input.write_all(format!("{{\"city\": \"Rome\", \"id\": {id}, \"n\": 1}}\n").as_bytes()).unwrap();
    }
    input
}

/// An import outlives its server: the batch without an answer is sent again, and stored once.
#[test]
fn an_import_goes_on_with_a_server_that_was_started_again() {
    let scratch = rows();
    let serve = Serve::new(&scratch);
    let args = ["import", "db", "-", "-c", "rows", "--format", "ndjson", "--batch", "10", "--ack"];
    let mut command = scratch.command(&args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut import = command.spawn().unwrap();
    let mut acks = BufReader::new(import.stdout.take().unwrap()).lines();
    let input = std::thread::scope(|scope| {
        let feeding = scope.spawn(|| feed(&mut import, 0..12_000));
        assert!(acks.next().unwrap().unwrap().starts_with("ack 1 10 "));
        serve.signal(Signal::KILL);
        feeding.join().unwrap()
    });
    drop(serve);
    let serve = Serve::new(&scratch);
    drop(input);
    assert_eq!(acks.count(), 1_199);
    let mut said = String::new();
    import.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(import.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.contains("12,000 rows in 1,200 batches into rows in "), "{said}");
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows", "--prefix", "Rome"]), "12000\n");
    drop(serve);
}

/// An import whose server goes away for good ends at a signal, and says what is stored and how the rest is.
#[test]
fn an_import_tells_what_a_server_that_went_away_has_stored() {
    let scratch = rows();
    let serve = Serve::new(&scratch);
    let args = ["import", "db", "-", "-c", "rows", "--format", "ndjson", "--batch", "2000", "--ack"];
    let mut command = scratch.command(&args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut import = command.spawn().unwrap();
    let mut acks = BufReader::new(import.stdout.take().unwrap()).lines();
    let input = feed(&mut import, 0..10_000);
    assert!(acks.next().unwrap().unwrap().starts_with("ack 1 2000 "));
    // Batches of more than 1,000 rows have no request id.
    serve.signal(Signal::KILL);
    drop(serve);
    drop(input);
    let stored = 2_000 * (1 + acks.count());
    let mut said = String::new();
    import.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    if stored == 10_000 {
        return; // All batches were on their way already.
    }
    assert_eq!(import.wait().unwrap().code(), Some(1), "{said}");
    for wanted in
        ["error[E0401]", "with --replace completes the rows", "and what was being committed may be too"]
    {
        assert!(said.contains(wanted), "{said}");
    }
    let count: usize = scratch.ok(&["count", "db", "-c", "rows", "--prefix", "Rome"]).trim().parse().unwrap();
    assert!(count == stored || count == stored + 2_000, "{count} rows, {stored} of them acknowledged");
}

/// What a server tells of its database from afar.
#[test]
fn top_asks_a_server() {
    let scratch = rows();
    let serve = Serve::new(&scratch);
    let ran = scratch.run(&["--at", "db", "top", "--count", "2", "--interval", "0.1", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let looks: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((looks.len(), &looks[0]["kind"], &looks[1]["commits"]), (2, &"top".into(), &0.into()));
    assert!(
        looks[1]["durable"].as_u64().unwrap() > 0 && looks[1]["timings"]["sync"].is_object(),
        "{looks:?}"
    );
    let text = scratch.ok(&["--at", "db", "top", "--count", "1", "--interval", "0.1"]);
    assert!(text.contains("commits     0 a second"), "{text}");
    drop(serve);
    assert_eq!(scratch.run(&["--at", "db", "top", "--count", "1"]).code, Some(6));
}

#[test]
fn watch_asks_a_server() {
    let scratch = rows();
    let serve = Serve::new(&scratch);
    let put = |id: u64| {
        let row = format!(r#"{{"city": "Oslo", "id": {id}, "n": 7}}"#);
        let told = scratch.ok(&["put", "db", "-c", "rows", &row, "--json"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told["seq"].as_u64().unwrap()
    };
    let since = put(900).to_string();
    put(901);
    put(902);
    let asked = |words: &[&str]| {
        let watch = ["--at", "db", "watch", "rows", "--follow=false", "--since", &since];
        scratch.ok(&[&watch[..], words].concat())
    };
    let text = asked(&[]);
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("put      Oslo,901") && text.contains("put      Oslo,902"), "{text}");
    assert_eq!(asked(&["--limit", "1"]).lines().count(), 1);
    assert_eq!(scratch.run(&["--at", "db", "watch", "row", "--json"]).code, Some(1));
    drop(serve);
}
