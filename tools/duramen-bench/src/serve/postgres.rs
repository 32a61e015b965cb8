//! PostgreSQL over TCP: prepared statements, a connection for each task.
//!
//! A transfer is sent as Duramen's is, in three messages that are waited for; or call by call.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::runtime::Runtime;
use tokio::try_join;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls, Statement};

use super::server::{ACCOUNTS, BALANCE, Done, Entry, Server, Teller, Transfer, Writer, free_port};
use crate::engine::{Result, Row};
use crate::postgres_script;

pub(super) const ENTRY: Entry = Entry {
    name: "postgres",
    setting: "fsync, synchronous_commit, full_page_writes on; 256 MiB of shared buffers, max_wal_size 4 GiB; prepared \
              statement, a connection a task, loopback TCP",
    start: |dir, _| Postgres::start(dir, true),
};

pub(super) const PLAIN: Entry = Entry {
    name: "postgres-plain",
    setting: "the same; each statement of a transfer waits for the one before, BEGIN and COMMIT too",
    start: |dir, _| Postgres::start(dir, false),
};

struct Postgres {
    dir: PathBuf,
    port: u16,
    process: u32,
    is_pipelined: bool,
}

impl Postgres {
    fn start(dir: &Path, is_pipelined: bool) -> Result<Box<dyn Server>> {
        let port = free_port()?;
        postgres_script::run(&["start".as_ref(), dir.as_os_str(), port.to_string().as_ref()])?;
        let written = fs::read_to_string(dir.join("data/postmaster.pid"))?;
        let process = written.lines().next().unwrap_or_default().trim().parse()?;
        let postgres = Postgres { dir: dir.to_owned(), port, process, is_pipelined };
        let create = "CREATE TABLE c (k bytea PRIMARY KEY, v bytea NOT NULL); \
                      CREATE TABLE accounts (id bigint PRIMARY KEY, cents bigint NOT NULL)";
        Runtime::new()?
            .block_on(async { Result::Ok(postgres.connect().await?.batch_execute(create).await?) })?;
        Ok(Box::new(postgres))
    }

    async fn connect(&self) -> Result<Client> {
        let where_to = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port);
        let (client, connection) = tokio_postgres::connect(&where_to, NoTls).await?;
        tokio::spawn(async move {
            // The client that waits is told of an error.
            let _ = connection.await;
        });
        Ok(client)
    }

    fn number(&self, query: &str) -> Result<u64> {
        let asked = async { Result::Ok(self.connect().await?.query_one(query, &[]).await?.get::<_, i64>(0)) };
        Ok(u64::try_from(Runtime::new()?.block_on(asked)?)?)
    }
}

impl Server for Postgres {
    fn processes(&self) -> Vec<u32> {
        vec![self.process]
    }

    fn writers(&self, runtime: &Runtime, tasks: usize, _: usize) -> Result<Vec<Box<dyn Writer>>> {
        let writer = |_| -> Result<Box<dyn Writer>> {
            runtime.block_on(async {
                let client = self.connect().await?;
                let insert = client.prepare("INSERT INTO c (k, v) VALUES ($1, $2)").await?;
                Ok(Box::new(Task { client, insert }) as Box<dyn Writer>)
            })
        };
        (0..tasks).map(writer).collect()
    }

    fn tellers(&self, runtime: &Runtime, tasks: usize, _: usize) -> Result<Vec<Box<dyn Teller>>> {
        let teller = |_| -> Result<Box<dyn Teller>> {
            runtime.block_on(async {
                let client = self.connect().await?;
                let select = client.prepare("SELECT cents FROM accounts WHERE id = $1").await?;
                let update = client.prepare("UPDATE accounts SET cents = $2 WHERE id = $1").await?;
                Ok(Box::new(Clerk { client, select, update, is_pipelined: self.is_pipelined })
                    as Box<dyn Teller>)
            })
        };
        (0..tasks).map(teller).collect()
    }

    fn open_accounts(&self) -> Result<()> {
        let last = ACCOUNTS - 1;
        let insert = format!("INSERT INTO accounts SELECT n, {BALANCE} FROM generate_series(0, {last}) n");
        Runtime::new()?.block_on(async {
            let client = self.connect().await?;
            client.batch_execute(&insert).await?;
            Ok(client.batch_execute("VACUUM ANALYZE accounts").await?)
        })
    }

    fn count(&self) -> Result<u64> {
        self.number("SELECT count(*) FROM c")
    }

    fn total(&self) -> Result<u64> {
        self.number("SELECT sum(cents)::bigint FROM accounts")
    }

    fn stop(self: Box<Self>) -> Result<()> {
        // Dropping it stops the server.
        Ok(())
    }
}

/// The server ends with the turn, however that ends.
impl Drop for Postgres {
    fn drop(&mut self) {
        if let Err(failed) = postgres_script::run(&["stop".as_ref(), self.dir.as_os_str()]) {
            crate::output::progress(&failed.to_string());
        }
    }
}

struct Task {
    client: Client,
    insert: Statement,
}

impl Writer for Task {
    fn put<'a>(&'a mut self, row: Row<'a>) -> Done<'a> {
        Box::pin(async move {
            self.client.execute(&self.insert, &[&row.key, &row.value]).await?;
            Ok(())
        })
    }
}

struct Clerk {
    client: Client,
    select: Statement,
    update: Statement,
    is_pipelined: bool,
}

const BEGIN: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE";

impl Clerk {
    async fn balance(&self, account: i64) -> std::result::Result<i64, Error> {
        Ok(self.client.query_one(&self.select, &[&account]).await?.get(0))
    }

    async fn store(&self, account: i64, cents: i64) -> std::result::Result<u64, Error> {
        self.client.execute(&self.update, &[&account, &cents]).await
    }

    async fn attempt(&self, Transfer { from, to, cents }: Transfer) -> std::result::Result<(), Error> {
        let (begin, commit) = (|| self.client.batch_execute(BEGIN), || self.client.batch_execute("COMMIT"));
        if self.is_pipelined {
            let ((), has) = try_join!(biased; begin(), self.balance(from))?;
            let other_has = self.balance(to).await?;
            let stored = (self.store(from, has - cents), self.store(to, other_has + cents));
            return try_join!(biased; stored.0, stored.1, commit()).map(drop);
        }
        begin().await?;
        let (has, other_has) = (self.balance(from).await?, self.balance(to).await?);
        self.store(from, has - cents).await?;
        self.store(to, other_has + cents).await?;
        commit().await
    }
}

impl Teller for Clerk {
    fn transfer(&mut self, transfer: Transfer) -> Done<'_> {
        Box::pin(async move {
            loop {
                let Err(error) = self.attempt(transfer).await else { return Ok(()) };
                let again = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
                if !error.code().is_some_and(|code| again.contains(code)) {
                    return Err(error.into());
                }
                self.client.batch_execute("ROLLBACK").await?;
            }
        })
    }
}
