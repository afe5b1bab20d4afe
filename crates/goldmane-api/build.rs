//! Compiles the protocol files to Rust. Needs no installed compiler.

use protox::prost_reflect::prost_types::{FileDescriptorSet, field_descriptor_proto::Type};

/// Fields kept as bytes, which look the same on the wire. A flow's key recurs every few seconds: it is recognised by
/// its bytes and decoded once. Parts of a policy match are strings for some clients and messages for others.
const AS_BYTES: [(&str, &[&str]); 2] =
    [("Flow", &["Key", "source_labels", "dest_labels"]), ("PolicyMatch", &["tier", "namespace", "name"])];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut descriptors = protox::compile(["goldmane.proto", "losses.proto"], ["proto"])?;
    for (message, fields) in AS_BYTES {
        for field in fields {
            keep_as_bytes(&mut descriptors, message, field)?;
        }
    }
    tonic_prost_build::configure().build_transport(false).bytes(".").compile_fds(descriptors)?;
    Ok(())
}

fn keep_as_bytes(descriptors: &mut FileDescriptorSet, message: &str, field: &str) -> Result<(), String> {
    let messages = descriptors.file.iter_mut().flat_map(|file| &mut file.message_type);
    let found = messages
        .filter(|found| found.name() == message)
        .flat_map(|found| &mut found.field)
        .find(|found| found.name() == field)
        .ok_or_else(|| format!("{message} has no {field}"))?;
    found.set_type(Type::Bytes);
    found.type_name = None;
    Ok(())
}
