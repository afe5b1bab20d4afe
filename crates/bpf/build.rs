//! Compresses the objects of `bpf/objects`: with their debug lines they would add a megabyte to the program; compressed
//! they are a quarter of that, and only a node with eBPF ever decompresses them.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::{Error, Write as _};
use std::path::PathBuf;

const OBJECTS: [&str; 6] = ["connect_v4.o", "connect_v6.o", "tc_v4.o", "tc_v6.o", "xdp_v4.o", "xdp_v6.o"];

fn main() -> Result<(), Error> {
    let from = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("../../bpf/objects");
    let to = PathBuf::from(variable("OUT_DIR")?);
    for name in OBJECTS {
        let path = from.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let bytes = std::fs::read(&path)
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&bytes)?;
        std::fs::write(to.join(name), packed.finish()?)?;
    }
    Ok(())
}

fn variable(name: &str) -> Result<String, Error> {
    std::env::var(name).map_err(|error| Error::other(format!("{name}: {error}")))
}
