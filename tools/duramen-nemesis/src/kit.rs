//! What nodes need before they start: certificates, and a clock that can be set.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::failure::{Result, failed};

const CLOCK: &str = include_str!("clock.c");

/// Makes an authority, and one certificate for all machines.
pub(crate) fn certificates(work: &Path, hosts: Vec<String>) -> Result<()> {
    let making = |error: rcgen::Error| format!("no certificate: {error}");
    let write = |name: &str, text: String| {
        fs::write(work.join(name), text).map_err(|error| failed("write", &name, &error))
    };
    let key = KeyPair::generate().map_err(making)?;
    let mut authority = CertificateParams::new(Vec::<String>::new()).map_err(making)?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    write("ca.pem", authority.self_signed(&key).map_err(making)?.pem())?;
    let issuer = Issuer::new(authority, key);
    let key = KeyPair::generate().map_err(making)?;
    let params = CertificateParams::new(hosts).map_err(making)?;
    write("node.pem", params.signed_by(&key, &issuer).map_err(making)?.pem())?;
    write("node.key", key.serialize_pem())
}

/// Builds the library that shifts clocks. `None` without a C compiler.
pub(crate) fn clock(work: &Path) -> Result<Option<PathBuf>> {
    let (source, library) = (work.join("clock.c"), work.join("clock.so"));
    fs::write(&source, CLOCK).map_err(|error| failed("write", &source.display(), &error))?;
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(&source)
        .arg("-ldl")
        .status();
    match built {
        Ok(status) if status.success() => Ok(Some(library)),
        Ok(status) => Err(format!("cc: {status}")),
        Err(_) => Ok(None),
    }
}
