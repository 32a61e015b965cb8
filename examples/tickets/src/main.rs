//! The program `tickets`: serves a directory at an address until ^C or SIGTERM.

#![allow(clippy::print_stdout, reason = "a program: it prints its address and the mails")]
#![allow(clippy::print_stderr, reason = "a program: it reports why it ends")]

use std::process::ExitCode;
use std::sync::Arc;

use tickets::mail::{Mail, Mailer};
use tickets::server::{Server, ServerError, Settings};
use tokio::signal::unix::{SignalKind, signal};

/// Prints mails instead of sending them.
struct Printer;

impl Mailer for Printer {
    fn send(&self, mail: &Mail) -> Result<(), String> {
        println!("mail to {}: {}: {}", mail.to, mail.subject, mail.text);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let database = arguments.next().unwrap_or_else(|| "tickets.duramen".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let Ok(address) = address.parse() else {
        eprintln!("usage: tickets [DIRECTORY [ADDRESS:PORT]]");
        return ExitCode::from(2);
    };
    match serve(Settings::new(database, address)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tickets: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(settings: Settings) -> Result<(), ServerError> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut server = Server::start(settings, Arc::new(Printer)).await?;
    println!("tickets: http://{}", server.address());
    let failure = tokio::select! {
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        error = server.failed() => Some(error),
    };
    let stopped = server.stop().await;
    failure.map_or(stopped, Err)
}
