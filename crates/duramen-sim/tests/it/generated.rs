//! The committed code of duramen-proto is what its `.proto` files say. A server and a client that disagree
//! about a field would read each other's bytes as something else.

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message as _;

const FILES: [&str; 6] = [
    "duramen/v1/values.proto",
    "duramen/v1/data.proto",
    "duramen/v1/schema.proto",
    "duramen/v1/feed.proto",
    "duramen/v1/blobs.proto",
    "duramen/v1/admin.proto",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../duramen-proto")
}

/// Written to `src/generated`, by name.
fn generate() -> Vec<(&'static str, Vec<u8>)> {
    let set = protox::compile(FILES, [root().join("proto")]).expect("the .proto files compile");
    let code = tempfile::tempdir().expect("a directory for the code");
    let mut config = tonic_prost_build::Config::new();
    config.bytes(["."]).enable_type_names();
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::codec::Codec")
        .emit_rerun_if_changed(false)
        .emit_package(true)
        .server_mod_attribute(".", "#[cfg(feature = \"server\")]")
        .client_mod_attribute(".", "#[cfg(feature = \"client\")]")
        .out_dir(code.path())
        .compile_fds_with_config(set.clone(), config)
        .expect("the descriptors become code");
    let code = fs::read(code.path().join("duramen.v1.rs")).expect("the code was written");
    vec![("duramen.v1.rs", code), ("descriptors.bin", set.encode_to_vec())]
}

fn committed(name: &str) -> PathBuf {
    root().join("src/generated").join(name)
}

#[test]
fn the_committed_code_is_what_the_proto_files_say() {
    for (name, generated) in generate() {
        let path = committed(name);
        if std::env::var_os("DURAMEN_WRITE_GOLDEN").is_some() {
            fs::write(&path, &generated).expect("it can be written");
        }
        let committed = fs::read(&path).expect("it is committed");
        assert!(
            committed == generated,
            "{} is not what the .proto files say: run this test with DURAMEN_WRITE_GOLDEN=1, and commit it",
            path.display()
        );
    }
}
