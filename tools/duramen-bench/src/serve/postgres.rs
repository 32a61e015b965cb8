//! PostgreSQL over TCP: an insert by a prepared statement, a connection for each task.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, Statement};

use super::Serve;
use super::server::{Entry, Server, Writer, free_port};
use crate::engine::{Result, Row};
use crate::postgres_script;

pub(super) const ENTRY: Entry = Entry {
    name: "postgres",
    setting: "fsync, synchronous_commit, full_page_writes on; 256 MiB of shared buffers, max_wal_size 4 GiB; prepared \
              statement, a connection a task, loopback TCP",
    start: Postgres::start,
};

struct Postgres {
    dir: PathBuf,
    port: u16,
    process: u32,
}

impl Postgres {
    fn start(dir: &Path, _: &Serve) -> Result<Box<dyn Server>> {
        let port = free_port()?;
        postgres_script::run(&["start".as_ref(), dir.as_os_str(), port.to_string().as_ref()])?;
        let written = fs::read_to_string(dir.join("data/postmaster.pid"))?;
        let process = written.lines().next().unwrap_or_default().trim().parse()?;
        let postgres = Postgres { dir: dir.to_owned(), port, process };
        let create = "CREATE TABLE c (k bytea PRIMARY KEY, v bytea NOT NULL)";
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
}

impl Server for Postgres {
    fn process(&self) -> u32 {
        self.process
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

    fn count(&self) -> Result<u64> {
        let asked = async {
            Result::Ok(self.connect().await?.query_one("SELECT count(*) FROM c", &[]).await?.get::<_, i64>(0))
        };
        Ok(u64::try_from(Runtime::new()?.block_on(asked)?)?)
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
    fn put<'a>(&'a mut self, row: Row<'a>) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>> {
        Box::pin(async move {
            self.client.execute(&self.insert, &[&row.key, &row.value]).await?;
            Ok(())
        })
    }
}
