//! Other IPAM plugins: finds them in `CNI_PATH`, starts them as the protocol requires, and reads their answers.

use crate::error::{CniError, Result, code};
use crate::request::{Command, Request};
use cni_protocol::result::CniResult;
use serde_json::Value;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command as Program, Output, Stdio};

/// Calls the IPAM plugin of this name with `document` as its configuration.
///
/// # Errors
/// When the plugin is not found, cannot be started, or fails; its own error is passed on.
pub(crate) async fn call(
    request: &Request,
    plugin: &str,
    command: Command,
    document: &Value,
    address: Option<IpAddr>,
) -> Result<Option<CniResult>> {
    let program = find(&request.path, plugin)?;
    let mut child = Program::new(&program);
    child.env_clear().envs(&request.environment);
    child.env("CNI_COMMAND", command.as_str()).env("CNI_ARGS", request.args.for_delegate(address));
    let input = document.to_string();
    let shown = program.display().to_string();
    let outcome = tokio::task::spawn_blocking(move || run(child, input.as_bytes())).await;
    let output = match outcome {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(failed(plugin, command, &format!("cannot start {shown}: {error}"))),
        Err(error) => return Err(failed(plugin, command, &error.to_string())),
    };
    read_answer(plugin, command, &output)
}

fn run(mut child: Program, input: &[u8]) -> std::io::Result<Output> {
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A plugin that does not read its configuration will report that itself.
        let _ = stdin.write_all(input);
    }
    child.wait_with_output()
}

fn read_answer(plugin: &str, command: Command, output: &Output) -> Result<Option<CniResult>> {
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        if let Ok(error) = serde_json::from_slice::<CniError>(&output.stdout) {
            return Err(CniError {
                cni_version: String::new(),
                msg: format!("IPAM plugin {plugin} {}: {}", command.as_str(), error.msg),
                ..error
            });
        }
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(failed(plugin, command, &format!("{}: {} {}", output.status, text.trim(), words.trim())));
    }
    if text.trim().is_empty() || command != Command::Add {
        return Ok(None);
    }
    let value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string());
    let result = value.and_then(|value: Value| CniResult::parse(&value));
    result.map(Some).map_err(|error| failed(plugin, command, &format!("its result cannot be read: {error}")))
}

fn find(path: &[PathBuf], plugin: &str) -> Result<PathBuf> {
    if plugin.is_empty() || plugin.contains('/') {
        let message = format!("ipam.type {plugin:?} is not the name of a plugin");
        return Err(CniError::new(code::INVALID_CONFIGURATION, message));
    }
    path.iter().map(|folder| folder.join(plugin)).find(|file| file.is_file()).ok_or_else(|| {
        let folders = path.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" ");
        CniError::new(code::DELEGATE, format!("failed to find plugin {plugin:?} in path [{folders}]"))
            .with_details("install the IPAM plugin into one of the folders of CNI_PATH")
    })
}

fn failed(plugin: &str, command: Command, reason: &str) -> CniError {
    CniError::new(code::DELEGATE, format!("IPAM plugin {plugin} {}: {reason}", command.as_str()))
}
