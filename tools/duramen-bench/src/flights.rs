//! `flights`: the command line with the flights, beside SQLite's shell, in turns.
//!
//! What a person does with a CSV file: import it, filter it, sum a field, export it. Figures are of whole
//! commands, so they include the time to start. The import into SQLite is done here: its shell imports in one
//! transaction, and the question is what durable batches of 1,000 rows take.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use flate2::read::GzDecoder;
use rusqlite::{Connection, params_from_iter, types};

use crate::engine::Result;
use crate::tables::Grid;
use crate::{child, machine, output};

/// How to measure the command line.
#[derive(Debug, Args)]
pub(crate) struct Flights {
    /// Directory on the disk to measure; a folder is made in it and removed.
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
    /// The directory of the flights.
    #[arg(long, default_value = "data/nycflights", value_name = "DIR")]
    pub data: PathBuf,
    /// The program `duramen`; the one beside this program unless given.
    #[arg(long, value_name = "FILE")]
    pub duramen: Option<PathBuf>,
    /// SQLite's shell.
    #[arg(long, default_value = "sqlite3", value_name = "FILE")]
    pub sqlite: PathBuf,
    /// Rounds, in each of which both do everything.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
}

/// Runs of a short command in a round: the kernel tells processor time in hundredths of a second.
const RUNS: usize = 10;

/// Rows of a durable transaction.
const BATCH: usize = 1_000;

/// What is asked of both, with the arguments after the database.
const QUESTIONS: [(&str, &[&str], &str); 3] = [
    (
        "filter by no index: dep_delay>=600",
        &["dep_delay>=600"],
        "SELECT * FROM flights WHERE dep_delay >= 600",
    ),
    ("sum of a field by scan", &["--sum", "distance"], "SELECT sum(distance) FROM flights"),
    (
        "count by no index: dep_delay>=60",
        &["--count", "dep_delay>=60"],
        "SELECT count(*) FROM flights WHERE dep_delay >= 60",
    ),
];

/// The rows of the table.
const ROWS: [&str; 9] = [
    "import in durable batches of 1,000: s",
    "the same: processor s",
    "processor ms",
    "processor ms",
    "processor ms",
    "export as CSV: processor ms",
    "export as CSV: MB of memory",
    "sum of a field by scan, one thread: wall ms",
    "sum of a field by scan, two threads here: wall ms",
];

struct Paths {
    csv: PathBuf,
    own: PathBuf,
    other: PathBuf,
}

/// Measures both, and prints a table.
///
/// # Errors
/// A program that is missing or fails; answers that differ.
pub(crate) fn run(words: &Flights) -> Result<()> {
    let beside = std::env::current_exe()?.with_file_name("duramen");
    let duramen = words.duramen.clone().unwrap_or(beside);
    if !duramen.is_file() {
        let path = duramen.display();
        return Err(format!(
            "{path} is no file: cargo build --release -p duramen-cli, or name it with --duramen"
        )
        .into());
    }
    let dir = words.dir.join(format!("duramen-flights-{}", std::process::id()));
    child::fresh(&dir)?;
    let measured = measure(words, &duramen, &dir);
    child::remove(&dir)?;
    let (figures, disk_bytes) = measured?;
    output::line(&machine::sentence());
    let head = ["flights", "Duramen", "SQLite", "times"].map(str::to_owned).to_vec();
    let mut rows: Vec<Vec<String>> = ROWS
        .iter()
        .enumerate()
        .map(|(at, what)| {
            let name = match at.checked_sub(2).and_then(|at| QUESTIONS.get(at)) {
                Some((question, ..)) => format!("{question}: {what}"),
                None => (*what).to_owned(),
            };
            row(name, &figures[at])
        })
        .collect();
    rows.push(row("MB on disk after close".to_owned(), &disk_bytes));
    output::table(&Grid { head, rows }.table());
    Ok(())
}

fn row(name: String, [own, other]: &[Vec<f64>; 2]) -> Vec<String> {
    let middle = |figures: &[f64]| {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        (sorted[sorted.len() / 2], sorted[0], sorted[sorted.len() - 1])
    };
    let shown = |figures: &[f64]| {
        let (middle, least, most) = middle(figures);
        format!("{middle:.2} [{least:.2} .. {most:.2}]")
    };
    vec![name, shown(own), shown(other), format!("{:.2}", middle(own).0 / middle(other).0)]
}

type Figures = Vec<[Vec<f64>; 2]>;

fn measure(words: &Flights, duramen: &Path, dir: &Path) -> Result<(Figures, [Vec<f64>; 2])> {
    let paths = Paths {
        csv: dir.join("flights.csv"),
        own: dir.join("flights.duramen"),
        other: dir.join("flights.sqlite"),
    };
    let packed = File::open(words.data.join("flights.csv.gz"))?;
    std::io::copy(&mut GzDecoder::new(packed), &mut File::create(&paths.csv)?)?;
    let mut figures: Figures = ROWS.iter().map(|_| Default::default()).collect();
    let mut disk_bytes: [Vec<f64>; 2] = Default::default();
    for round in 0..words.rounds {
        output::progress(&format!("round {} of {}", round + 1, words.rounds));
        for turn in 0..2 {
            let who = (turn + usize::try_from(round)?) % 2;
            machine::settle(dir);
            let taken = if who == 0 { own_import(duramen, &paths)? } else { other_import(&paths)? };
            figures[0][who].push(taken.0);
            figures[1][who].push(taken.1);
        }
        for (at, (question, own, other)) in QUESTIONS.iter().enumerate() {
            let asked = [ask_own(duramen, &paths, own), ask_other(&words.sqlite, &paths, other)];
            for turn in 0..2 {
                let who = (turn + usize::try_from(round)?) % 2;
                let begun = machine::children_cpu_seconds();
                for _ in 0..RUNS {
                    finish(command(&asked[who]).spawn()?, question)?;
                }
                let ms = (machine::children_cpu_seconds() - begun) * 1e3 / RUNS as f64;
                figures[2 + at][who].push(ms);
            }
        }
        sums(words, duramen, &paths, round, &mut figures[7..])?;
        let export = [
            vec![
                duramen.display().to_string(),
                "export".into(),
                paths.own.display().to_string(),
                "--collection".into(),
                "flights".into(),
                "--format".into(),
                "csv".into(),
            ],
            vec![
                words.sqlite.display().to_string(),
                "-csv".into(),
                "-header".into(),
                paths.other.display().to_string(),
                "SELECT * FROM flights".into(),
            ],
        ];
        for turn in 0..2 {
            let who = (turn + usize::try_from(round)?) % 2;
            let begun = machine::children_cpu_seconds();
            let peak_bytes = watch(command(&export[who]).spawn()?)?;
            figures[5][who].push((machine::children_cpu_seconds() - begun) * 1e3);
            figures[6][who].push(peak_bytes as f64 / 1e6);
        }
        disk_bytes[0].push(machine::space_bytes(&paths.own) as f64 / 1e6);
        disk_bytes[1].push(fs::metadata(&paths.other)?.len() as f64 / 1e6);
    }
    Ok((figures, disk_bytes))
}

/// Wall times of a sum by scan, with one thread and with two; SQLite has one.
fn sums(
    words: &Flights,
    duramen: &Path,
    paths: &Paths,
    round: u64,
    figures: &mut [[Vec<f64>; 2]],
) -> Result<()> {
    let (question, own, other) = QUESTIONS[1];
    for (threads, figures) in ["1", "2"].into_iter().zip(figures) {
        let own = [own, &["--threads", threads]].concat();
        let asked = [ask_own(duramen, paths, &own), ask_other(&words.sqlite, paths, other)];
        for turn in 0..2 {
            let who = (turn + usize::try_from(round)?) % 2;
            let begun = Instant::now();
            for _ in 0..RUNS {
                finish(command(&asked[who]).spawn()?, question)?;
            }
            figures[who].push(begun.elapsed().as_secs_f64() * 1e3 / RUNS as f64);
        }
    }
    Ok(())
}

fn ask_own(duramen: &Path, paths: &Paths, arguments: &[&str]) -> Vec<String> {
    let words = ["find", "--scan", "--collection", "flights"].into_iter().chain(arguments.iter().copied());
    let mut asked = vec![duramen.display().to_string()];
    asked.extend(words.map(str::to_owned));
    asked.insert(2, paths.own.display().to_string());
    asked
}

fn ask_other(sqlite: &Path, paths: &Paths, sql: &str) -> Vec<String> {
    vec![sqlite.display().to_string(), paths.other.display().to_string(), sql.to_owned()]
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn finish(mut running: Child, what: &str) -> Result<()> {
    let status = running.wait()?;
    if status.success() { Ok(()) } else { Err(format!("{what}: a command ended with {status}").into()) }
}

/// Waits for a command and returns the most memory that it was seen to have.
fn watch(mut running: Child) -> Result<u64> {
    let mut peak_bytes = 0;
    while running.try_wait()?.is_none() {
        peak_bytes = peak_bytes.max(machine::resident_bytes_max_of(running.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    }
    finish(running, "export")?;
    Ok(peak_bytes)
}

/// Seconds and processor seconds of the import.
fn own_import(duramen: &Path, paths: &Paths) -> Result<(f64, f64)> {
    if paths.own.exists() {
        fs::remove_dir_all(&paths.own)?;
    }
    let words = ["--collection", "flights", "--assign-id", "id", "--null", "NA", "--batch", "1000"];
    let mut import = vec![duramen.display().to_string(), "import".into()];
    import.extend([&paths.own, &paths.csv].map(|path| path.display().to_string()));
    import.extend(words.map(str::to_owned));
    let (begun, processor) = (Instant::now(), machine::children_cpu_seconds());
    finish(command(&import).spawn()?, "import")?;
    Ok((begun.elapsed().as_secs_f64(), machine::children_cpu_seconds() - processor))
}

/// The same rows in SQLite, with integers where a column has them and null for `NA`.
fn other_import(paths: &Paths) -> Result<(f64, f64)> {
    for end in ["", "-wal", "-shm"] {
        let file = PathBuf::from(format!("{}{end}", paths.other.display()));
        if file.exists() {
            fs::remove_file(file)?;
        }
    }
    let (begun, processor) = (Instant::now(), machine::cpu_seconds());
    let text = fs::read_to_string(&paths.csv)?;
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let mut connection = Connection::open(&paths.other)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection
        .execute_batch(&format!("CREATE TABLE flights (id INTEGER PRIMARY KEY, {})", columns.join(", ")))?;
    let insert = format!("INSERT INTO flights VALUES (NULL, {})", vec!["?"; columns.len()].join(", "));
    loop {
        let transaction = connection.transaction()?;
        let mut count = 0;
        {
            let mut insert = transaction.prepare_cached(&insert)?;
            for line in lines.by_ref().take(BATCH) {
                insert.execute(params_from_iter(line.split(',').map(|cell| match cell.parse::<i64>() {
                    Ok(number) => types::Value::Integer(number),
                    Err(_) if cell == "NA" => types::Value::Null,
                    Err(_) => types::Value::Text(cell.to_owned()),
                })))?;
                count += 1;
            }
        }
        transaction.commit()?;
        if count < BATCH {
            break;
        }
    }
    connection.close().map_err(|(_, error)| error)?;
    Ok((begun.elapsed().as_secs_f64(), machine::cpu_seconds() - processor))
}
