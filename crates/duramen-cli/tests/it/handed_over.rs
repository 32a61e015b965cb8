//! A server under a service manager: sockets that it hands over, and what it is told.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::runner::{Scratch, output, start};

/// `duramen serve` with a file in the place of the first socket.
fn serve(scratch: &Scratch, file: impl Into<OwnedFd>, arguments: &[&str]) -> Command {
    // The process keeps its number: it becomes the server.
    let script =
        "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" serve db --json \"$@\"";
    let mut command = scratch.shell(script);
    command.arg(env!("CARGO_BIN_EXE_duramen")).args(arguments).stdin(Stdio::from(file.into()));
    command
}

/// Starts one; returns its addresses.
fn serving(command: &mut Command) -> (Child, Vec<String>) {
    let mut server = start(command.stdout(Stdio::piped())).unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let told: serde_json::Value =
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
    let addresses = told["addresses"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned());
    let addresses = addresses.collect();
    (server, addresses)
}

fn stop(mut server: Child) {
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn a_listener_is_taken_in_the_place_of_the_usual_address() {
    let scratch = Scratch::with_rows("id,n\n1,30\n2,75\n", &["--key", "id"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let manager = UnixDatagram::bind(scratch.path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let heard = || {
        let mut bytes = [0; 100];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };
    let at = format!("duramen://{address}?token_file=db/serve.token");
    let count = ["count", "-c", "rows", "--at", &at];
    // Its token is in the file once there was a server.
    let mut waiting: Option<Child> = None;
    for _ in 0..3 {
        let mut command = serve(&scratch, listener.try_clone().unwrap(), &[]);
        let (server, addresses) = serving(command.env("NOTIFY_SOCKET", scratch.path("notify")));
        assert_eq!(addresses, [address.as_str()]);
        assert_eq!(heard(), "READY=1");
        if let Some(waiting) = waiting.take() {
            let counted = waiting.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&counted.stdout).trim(), "2", "{counted:?}");
        }
        assert_eq!(scratch.ok(&count).trim(), "2");
        stop(server);
        assert_eq!(heard(), "STOPPING=1");
        // No server runs: the next one answers.
        waiting = Some(start(&mut scratch.command_as_is(&count)).unwrap());
    }
    // No other process has the listener open.
    drop(listener);
    let refused = waiting.unwrap().wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(6), "{refused:?}");
}

#[test]
fn a_socket_is_taken_and_a_file_is_refused() {
    let scratch = Scratch::with_rows("id,n\n1,30\n2,75\n", &["--key", "id"]);
    let listener = UnixListener::bind(scratch.path("shop.sock")).unwrap();
    let (server, addresses) = serving(&mut serve(&scratch, listener, &[]));
    assert!(addresses.is_empty(), "{addresses:?}");
    assert_eq!(scratch.ok(&["count", "-c", "rows", "--at", "unix:shop.sock"]).trim(), "2");
    assert_eq!(scratch.ok(&["count", "db", "-c", "rows"]).trim(), "2");
    stop(server);

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let refused = output(&mut serve(&scratch, listener, &["--socket-only"])).unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && told.contains("--socket-only"), "{told}");

    let file = File::open(scratch.path("rows.csv")).unwrap();
    let refused = output(&mut serve(&scratch, file, &[])).unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("listener 1 of LISTEN_FDS") && told.contains(".socket"), "{told}");
}
