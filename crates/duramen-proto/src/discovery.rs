//! How a process finds the one that serves a database: files in its directory.
//!
//! The process that has the database open writes them, and removes them when it stops to serve. They are
//! hints: a client believes an answer only if it names the id of the database that it wants.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The file that says how the database is served.
pub const FILE: &str = "serve.json";

/// The socket.
pub const SOCKET: &str = "serve.sock";

/// The token for TCP: a secret of the user to whom the database belongs.
pub const TOKEN: &str = "serve.token";

/// The port of a server, if it is not named.
pub const PORT: u16 = 7420;

/// How a database is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// The version of this file.
    pub v: u32,
    /// The serving process.
    pub pid: u32,
    /// The opening of the database that it serves.
    pub run: u64,
    /// The id of the database, as the library prints it.
    pub database: String,
    /// Whether there is a socket.
    pub socket: bool,
    /// Addresses of TCP.
    pub addresses: Vec<String>,
    /// The release of the server.
    pub version: String,
}

impl Serving {
    /// From the text of the file; `None` if it is not one of this version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Serving> {
        serde_json::from_str(text).ok().filter(|serving: &Serving| serving.v == 1)
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string(self).expect("numbers and texts are JSON");
        text.push('\n');
        text
    }
}

/// The socket of a database's directory.
#[must_use]
pub fn socket_of(directory: &Path) -> PathBuf {
    directory.join(SOCKET)
}

/// Unix sockets have names of this many bytes at most.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Whether the name of a socket is too long for the system.
#[must_use]
pub fn is_too_long(path: &Path) -> bool {
    path.as_os_str().len() > SOCKET_PATH_BYTES_MAX
}
