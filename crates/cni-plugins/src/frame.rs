//! The common part of all plugins: reading the call, choosing the command, the previous result, printing.

use crate::{ReferencePlugin, bandwidth, host_local, loopback, portmap, tuning};
use cni_protocol::error::{Result, code};
use cni_protocol::result::CniResult;
use cni_protocol::{Call, CniError, CniVersion, Command, Environment, Outcome, version};
use netlink::namespace::Namespace;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;

/// A failure that the reference plugins report without a code of its own.
pub(crate) fn failure(message: impl Into<String>) -> CniError {
    CniError::new(code::INTERNAL, message)
}

/// Runs a plugin with the environment and streams of this process; returns the exit code.
#[must_use]
pub fn run_in_process(plugin: ReferencePlugin) -> u8 {
    cni_protocol::process::run(|environment, stdin| run(plugin, environment, stdin))
}

/// Runs a plugin. `stdin` is read only if input is expected.
#[must_use]
pub fn run(plugin: ReferencePlugin, environment: &Environment, stdin: impl FnOnce() -> Vec<u8>) -> Outcome {
    let command = environment.get("CNI_COMMAND").map_or("", String::as_str);
    if command.is_empty() {
        let stderr = format!(
            "CNI {} plugin {}\nCNI protocol versions supported: {}\n",
            plugin.name(),
            env!("CARGO_PKG_VERSION"),
            version::SUPPORTED.join(", ")
        );
        return Outcome { stderr, ..Outcome::default() };
    }
    let input = if command == Command::Version.as_str() { Vec::new() } else { stdin() };
    let call = match Call::read(environment, &input) {
        Ok(call) => call,
        Err(error) => return Outcome::of(Err(error), ""),
    };
    Outcome::of(carry_out(plugin, &call, &input), &call.cni_version)
}

fn carry_out(plugin: ReferencePlugin, call: &Call, input: &[u8]) -> Result<Vec<u8>> {
    match (call.command, plugin) {
        (Command::Version, _) => return Ok(version::answer().to_string().into_bytes()),
        // Nothing that these plugins keep can be attributed to a network, and none of them depends on anything that
        // could be unavailable.
        (Command::Status | Command::Gc, _) => {}
        (Command::Add, ReferencePlugin::Loopback) => return print(call, &loopback::add(call)?),
        (Command::Del, ReferencePlugin::Loopback) => loopback::delete(call)?,
        (Command::Check, ReferencePlugin::Loopback) => loopback::check(call)?,
        (Command::Add, ReferencePlugin::HostLocal) => return print(call, &host_local::add(call)?),
        (Command::Del, ReferencePlugin::HostLocal) => host_local::delete(call)?,
        (Command::Check, ReferencePlugin::HostLocal) => host_local::check(call)?,
        (Command::Add, ReferencePlugin::Portmap) => return print(call, &portmap::add(call)?),
        (Command::Del, ReferencePlugin::Portmap) => portmap::delete(call)?,
        (Command::Check, ReferencePlugin::Portmap) => portmap::check(call)?,
        (Command::Add, ReferencePlugin::Tuning) => return print(call, &tuning::add(call, input)?),
        (Command::Del, ReferencePlugin::Tuning) => tuning::delete(call)?,
        (Command::Check, ReferencePlugin::Tuning) => tuning::check(call, input)?,
        (Command::Add, ReferencePlugin::Bandwidth) => return print(call, &bandwidth::add(call)?),
        (Command::Del, ReferencePlugin::Bandwidth) => bandwidth::delete(call)?,
        (Command::Check, ReferencePlugin::Bandwidth) => bandwidth::check(call)?,
    }
    Ok(Vec::new())
}

fn print(call: &Call, result: &CniResult) -> Result<Vec<u8>> {
    result.render(CniVersion::of_result(&call.cni_version))
}

/// The plugin's own configuration.
pub(crate) fn configuration<T: DeserializeOwned>(call: &Call) -> Result<T> {
    let mut document = call.document.clone();
    if let Some(runtime) = document.get_mut("runtimeConfig") {
        as_documented(runtime);
    }
    serde_json::from_value(document)
        .map_err(|error| failure(format!("failed to parse network configuration: {error}")))
}

/// Changes names in the runtime's part to start with a lower-case letter, as the conventions require. containerd writes
/// `HostPort` and `IngressRate`; the reference plugins ignore the case of names and never noticed.
fn as_documented(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(as_documented),
        Value::Object(fields) => {
            for (name, mut inner) in std::mem::take(fields) {
                as_documented(&mut inner);
                let mut letters = name.chars();
                let small = letters.next().map(|first| first.to_ascii_lowercase());
                let name: String = small.into_iter().chain(letters).collect();
                fields.insert(name, inner);
            }
        }
        _ => {}
    }
}

/// The result of the previous plugins; `None` when this is the first.
pub(crate) fn previous_result(call: &Call) -> Result<Option<CniResult>> {
    match call.document.get("prevResult") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => CniResult::parse(value)
            .map(Some)
            .map_err(|error| failure(format!("could not parse prevResult: {error}"))),
    }
}

/// Runs `work` in the container's network namespace.
pub(crate) fn in_container<T: Send>(call: &Call, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let namespace = Namespace::open(Path::new(&call.netns))
        .map_err(|error| failure(format!("failed to open netns {:?}: {error}", call.netns)))?;
    namespace
        .run(work)
        .map_err(|error| failure(format!("failed to enter netns {:?}: {error}", call.netns)))?
}

/// Runs `work` in the container's network namespace, unless that is gone: then there is nothing left to do.
pub(crate) fn in_container_if_there(call: &Call, work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    if call.netns.is_empty() {
        return Ok(());
    }
    match Namespace::open(Path::new(&call.netns)) {
        Err(error) if error.is_missing() => Ok(()),
        _ => in_container(call, work),
    }
}
