//! Compiles the protocol files to Rust, and keeps their descriptors for the JSON gateway. Needs no installed compiler.

use std::{env, fs, path::PathBuf};

use prost::Message as _;
use protox::prost_reflect::prost_types::{FileDescriptorSet, field_descriptor_proto::Type};

const FILES: [&str; 6] =
    ["keys.proto", "watch.proto", "lease.proto", "cluster.proto", "maintenance.proto", "users.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    keep_events_encoded(&mut descriptors)?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}

/// Types the events of watch messages as bytes, which are the same on the wire: an event is encoded once for all
/// watches that receive it.
fn keep_events_encoded(descriptors: &mut FileDescriptorSet) -> Result<(), &'static str> {
    let messages = descriptors.file.iter_mut().flat_map(|file| &mut file.message_type);
    let events = messages
        .filter(|message| message.name() == "WatchResponse")
        .flat_map(|message| &mut message.field)
        .find(|field| field.name() == "events")
        .ok_or("WatchResponse has no events")?;
    events.set_type(Type::Bytes);
    events.type_name = None;
    Ok(())
}
