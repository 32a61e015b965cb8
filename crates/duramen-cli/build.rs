//! Passes the optimisation level and the profile to the program, for `duramen doctor`.

#![allow(clippy::disallowed_methods, reason = "cargo tells a build script in its environment")]

fn main() {
    for (from, to) in [("OPT_LEVEL", "DURAMEN_OPT_LEVEL"), ("PROFILE", "DURAMEN_PROFILE")] {
        let value = std::env::var(from).unwrap_or_else(|_| "unknown".to_owned());
        println!("cargo:rustc-env={to}={value}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
