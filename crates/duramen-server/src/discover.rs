//! The files in the directory of the database by which other processes find this one.
//!
//! Only the process that holds the lock of the database makes or removes them, so those of an earlier process
//! are stale. Each appears whole: it is made under another name, in a directory that no other user can enter,
//! and renamed.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use duramen::error::{Code, Error, Result};
use duramen_proto::discovery::{self, Serving};
use rustix::rand::{GetRandomFlags, getrandom};

/// Where the socket is made before it has its name.
const NEW: &str = "serve.new";

const SECRET_BYTES: usize = 32;

/// The socket of a database. Dropping it removes its name.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    /// Another server of this process may have put its own there since.
    inode: u64,
    pub(crate) listener: UnixListener,
}

impl Socket {
    /// Binds the socket of a database's directory, in the place of a stale one.
    ///
    /// # Errors
    /// `System` (E1001) if the file system has no sockets, for example.
    pub(crate) fn bind(directory: &Path) -> Result<Socket> {
        let failed = |error: io::Error| Error::io("make the socket in", directory, &error);
        let new = directory.join(NEW);
        remove_directory(&new).map_err(failed)?;
        fs::DirBuilder::new().mode(0o700).create(&new).map_err(failed)?;
        let listener = bind_in(&new).map_err(failed)?;
        let made = new.join(discovery::SOCKET);
        fs::set_permissions(&made, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let metadata = fs::metadata(&made).map_err(failed)?;
        let path = discovery::socket_of(directory);
        fs::rename(&made, &path).map_err(failed)?;
        fs::remove_dir(&new).map_err(failed)?;
        Ok(Socket { path, inode: metadata.ino(), listener })
    }
}

/// Names of sockets are short. Where the path is too long, the directory is named by its open file.
fn bind_in(directory: &Path) -> io::Result<UnixListener> {
    let path = directory.join(discovery::SOCKET);
    if !discovery::is_too_long(&path) {
        return UnixListener::bind(path);
    }
    let opened = fs::File::open(directory)?;
    UnixListener::bind(format!("/proc/self/fd/{}/{}", opened.as_raw_fd(), discovery::SOCKET))
}

/// Removes what a start that was cut short has left.
fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_file(path.join(discovery::SOCKET)).and_then(|()| fs::remove_dir(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => match fs::remove_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A name that is left is stale: the next server replaces it.
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The file that says how a database is served. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Notice {
    path: PathBuf,
    inode: u64,
}

impl Notice {
    /// Writes the file.
    ///
    /// # Errors
    /// `DiskFull` (E0301) or `System` (E1001) if it cannot be written.
    pub(crate) fn write(directory: &Path, serving: &Serving) -> Result<Notice> {
        let path = directory.join(discovery::FILE);
        let inode = write_whole(&path, serving.to_text().as_bytes())?;
        Ok(Notice { path, inode })
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The token of a database: the one in its directory, if no other user can have read it, else a new one.
///
/// # Errors
/// `DiskFull` (E0301) or `System` (E1001) if it cannot be read or written.
pub(crate) fn token(directory: &Path, database: &str) -> Result<String> {
    let path = directory.join(discovery::TOKEN);
    let prefix = format!("dur_{}_", &database[..16]);
    if let Some(token) = own_text(&path).map_err(|error| Error::io("read", &path, &error))?
        && token.strip_prefix(&prefix).is_some_and(is_secret)
    {
        return Ok(token);
    }
    let token = prefix + &URL_SAFE_NO_PAD.encode(random()?);
    write_whole(&path, token.as_bytes())?;
    Ok(token)
}

fn is_secret(text: &str) -> bool {
    URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == SECRET_BYTES)
}

fn random() -> Result<[u8; SECRET_BYTES]> {
    let mut bytes = [0; SECRET_BYTES];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    match filled {
        Ok(SECRET_BYTES) => Ok(bytes),
        Ok(_) => Err(Error::new(Code::System, "the system gives no random bytes for a token")),
        Err(error) => Err(Error::new(Code::System, format!("the system gives no random bytes: {error}"))),
    }
}

/// The text of a file that is this user's and that no other user can read.
fn own_text(path: &Path) -> io::Result<Option<String>> {
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A symbolic link.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Ok(None);
        }
        opened => opened?,
    };
    let metadata = file.metadata()?;
    let own = rustix::process::geteuid().as_raw();
    if !metadata.is_file() || metadata.uid() != own || metadata.mode() & 0o077 != 0 {
        return Ok(None);
    }
    let mut text = String::new();
    Ok(file.take(1024).read_to_string(&mut text).is_ok().then_some(text))
}

/// Writes a file of mode 0600 that is there whole or not at all. Returns its inode.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<u64> {
    let new = path.with_extension("tmp");
    let written = || -> io::Result<u64> {
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        let inode = file.metadata()?.ino();
        fs::rename(&new, path)?;
        Ok(inode)
    };
    written().map_err(|error| Error::io("write", path, &error))
}

/// The owner of a directory, which must be the user of this process. Files that root makes in a directory of
/// another user would be out of that user's reach, and their names in that user's hands.
///
/// # Errors
/// `Forbidden` (E1102) for another user's directory; `System` (E1001) if it cannot be looked at.
pub(crate) fn owner(directory: &Path) -> Result<u32> {
    let metadata = fs::metadata(directory).map_err(|error| Error::io("look at", directory, &error))?;
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner == own {
        return Ok(owner);
    }
    let shown = directory.display();
    let what = format!("the database {shown} belongs to the user {owner}, and this process runs as {own}");
    Err(Error::new(Code::Forbidden, what).with_hint("serve a database as the user to whom it belongs"))
}

#[cfg(test)]
mod tests {
    //! A token that other users could read is worthless, and a socket that a dead process left does not
    //! prevent a new one.
    use super::*;

    const DATABASE: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_token_stays_unless_others_could_read_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let of = |database: &str| token(directory.path(), database).expect("a token");
        let first = of(DATABASE);
        assert_eq!((first.len(), &first[..21]), (64, "dur_0123456789abcdef_"));
        assert_eq!(of(DATABASE), first);
        let path = directory.path().join(discovery::TOKEN);
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        assert_eq!(mode(&path), 0o600);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("it can be changed");
        let second = of(DATABASE);
        assert_ne!(second, first);
        assert_eq!(mode(&path), 0o600);
        assert_ne!(of("f123456789abcdef0123456789abcdef"), second, "of another database");
        fs::write(&path, "dur_0123456789abcdef_short").expect("it can be written");
        assert_eq!(of(DATABASE).len(), 64);

        // A link would make the secret one that another file has.
        let elsewhere = directory.path().join("elsewhere");
        fs::rename(&path, &elsewhere).expect("it can be renamed");
        std::os::unix::fs::symlink(&elsewhere, &path).expect("a link can be made");
        let linked = fs::read_to_string(&elsewhere).expect("text");
        assert_ne!(of(DATABASE), linked);
        assert!(!fs::symlink_metadata(&path).expect("it is there").is_symlink());
    }

    #[test]
    fn a_stale_socket_is_replaced_also_under_a_long_path() {
        let directory = tempfile::tempdir().expect("a directory");
        let long = directory.path().join("d".repeat(120));
        fs::create_dir(&long).expect("it can be made");
        for directory in [directory.path(), &long] {
            let first = Socket::bind(directory).expect("bound");
            let path = discovery::socket_of(directory);
            assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
            // As a killed process leaves it.
            std::mem::forget(first);
            fs::create_dir(directory.join(NEW)).expect("it can be made");
            let second = Socket::bind(directory).expect("bound again");
            assert!(path.exists() && !directory.join(NEW).exists());
            drop(second);
            assert!(!path.exists());
        }
    }
}
