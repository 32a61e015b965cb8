//! Duramen by a server: the typed shop, by the client library, over TCP with a token.
//!
//! Owns the server, which runs in the same process: what is measured is the path, not two machines.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use duramen::Db;
use duramen_client::Remote;
use duramen_server::Server;

use super::typed::Visit;
use crate::commerce::shop::{Entry, Shop, Stock, Store};
use crate::engine;

/// The entry in the list of engines.
pub(super) const ENTRY: Entry = Entry {
    name: "duramen-remote",
    setting: "as duramen-typed, by a server in the same process: each agent is a client with a connection of its own",
    open,
};

struct Served {
    db: Db,
    server: Server,
    address: String,
    stock: Stock,
}

fn open(path: &Path, stock: Stock) -> engine::Result<Box<dyn Store>> {
    let db = Db::open(path)?;
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::builder(db.clone()).listen(loopback).start()?;
    let address = server.addresses().first().ok_or("no address")?;
    let address = format!("duramen://{}@{address}", server.token().ok_or("no token")?);
    Ok(Box::new(Served { db, server, address, stock }))
}

impl Store for Served {
    fn shop(&self) -> engine::Result<Box<dyn Shop + '_>> {
        Ok(Box::new(Visit::new(Remote::connect(&self.address)?, self.stock)))
    }

    fn close(self: Box<Self>) -> engine::Result<()> {
        self.server.stop();
        Ok(self.db.close()?)
    }
}
