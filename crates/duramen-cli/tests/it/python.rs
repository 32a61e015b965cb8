//! The Python program of docs/server.md, over code that is generated from the `.proto` files.

use std::path::Path;
use std::process::Command;

use crate::runner::{Scratch, skipped};
use crate::serving::Serve;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What generates the code, and what it needs to run.
const PACKAGES: [&str; 2] = ["grpcio>=1.70", "grpcio-tools>=1.70"];

fn run(command: &mut Command) -> Result<String, String> {
    let ran = command.output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if ran.status.success() { Ok(text(&ran.stdout)) } else { Err(text(&ran.stderr)) }
}

/// Installs the packages beside the test, for it alone.
fn install(packages: &Path) -> Result<String, String> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]).arg(packages);
    run(pip.args(["--timeout", "15", "--retries", "1"]).args(PACKAGES))
}

#[test]
fn the_python_program_of_the_documentation_runs() {
    let scratch = Scratch::new();
    let packages = scratch.path("packages");
    if let Err(why) = install(&packages) {
        let why = why.lines().last().unwrap_or_default().to_owned();
        return skipped(&format!("the Python program — its packages cannot be installed: {why}"));
    }
    let python = |arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.current_dir(scratch.path(".")).env("PYTHONPATH", &packages).args(arguments);
        run(&mut command).unwrap()
    };
    let proto = format!("{ROOT}/crates/duramen-proto/proto");
    python(&[
        "-m",
        "grpc_tools.protoc",
        "-I",
        &proto,
        "--python_out=.",
        "--grpc_python_out=.",
        "duramen/v1/values.proto",
        "duramen/v1/data.proto",
        "duramen/v1/feed.proto",
    ]);
    std::fs::copy(format!("{ROOT}/docs/python/shop.py"), scratch.path("shop.py")).unwrap();
    let serve = Serve::of(&scratch, "shop.duramen");
    let wanted =
        "sold: [True, True, True, False]\nOslo: 2 orders, 2000 cents\nall: [1, 2, 3]\nmailed: [1, 2, 3]";
    assert_eq!(python(&["shop.py", "shop.duramen"]), wanted);
    drop(serve);
    assert_eq!(scratch.ok(&["count", "shop.duramen", "-c", "sales"]).trim(), "3");
}
