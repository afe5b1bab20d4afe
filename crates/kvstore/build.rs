//! Compiles the protocol files to Rust, and keeps their description for the JSON gateway. Needs no installed compiler.

use std::{env, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 6] =
    ["keys.proto", "watch.proto", "lease.proto", "cluster.proto", "maintenance.proto", "users.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().build_client(false).bytes(".").compile_fds(descriptors)?;
    Ok(())
}
