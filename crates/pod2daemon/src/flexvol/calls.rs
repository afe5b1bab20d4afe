//! The kubelet's calls and their answers.

use crate::volume::{self, Credentials, HomeFields, Homes, Volume, VolumeName};
use daemon::Environment;
use daemon::log::LevelFilter;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Component, Path};

/// The driver's file on the host, which is optional and rare.
const FILE: &str = "/etc/flexvolume/nodeagent.json";
/// The default version of Kubernetes from which on the driver reports its capabilities.
const KUBERNETES: &str = "1.8";

/// The contents of the host's file.
#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) homes: Homes,
    pub(super) says_capabilities: bool,
    pub(super) level: LevelFilter,
    pub(super) problems: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    #[serde(flatten)]
    homes: HomeFields,
    k8s_version: String,
    log_level: String,
}

impl Configuration {
    /// Reads the file. An unreadable file is ignored: pods must not wait for it.
    pub(super) fn read(environment: &dyn Environment) -> Self {
        let mut problems = Vec::new();
        let text = match environment.read_file(Path::new(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::from("{}")),
            outcome => outcome.map_err(|error| error.to_string()),
        };
        let file =
            text.and_then(|text| serde_json::from_str::<File>(&text).map_err(|error| error.to_string()));
        let file = file.unwrap_or_else(|error| {
            problems.push(format!("cannot use {FILE}: {error}"));
            File::default()
        });
        let level = match file.log_level.as_str() {
            "" => Some(LevelFilter::WARN),
            name => daemon::log::level(name),
        };
        if level.is_none() {
            problems.push(format!("{FILE}: {:?} is not a level", file.log_level));
        }
        Self {
            homes: file.homes.into(),
            says_capabilities: file.k8s_version.is_empty() || file.k8s_version == KUBERNETES,
            level: level.unwrap_or(LevelFilter::WARN),
            problems,
        }
    }
}

/// An answer to the kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    status: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    capabilities: Option<Capabilities>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Capabilities {
    attach: bool,
}

impl Answer {
    fn success(message: &str) -> Self {
        Self { status: "Success", message: message.to_owned(), capabilities: None }
    }

    fn failure(message: String) -> Self {
        Self { status: "Failure", message, capabilities: None }
    }

    /// Makes the kubelet act as if there were no driver.
    pub(super) fn not_supported(message: &str) -> Self {
        Self { status: "Not supported", message: message.to_owned(), capabilities: None }
    }

    /// The exit code for the answer.
    pub(super) fn code(&self) -> u8 {
        u8::from(self.status == "Failure")
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Strings and one number: serialising them cannot fail.
        f.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

/// The kubelet's information about a pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pod {
    #[serde(rename = "kubernetes.io/pod.uid")]
    uid: String,
    #[serde(rename = "kubernetes.io/pod.name")]
    name: String,
    #[serde(rename = "kubernetes.io/pod.namespace")]
    namespace: String,
    #[serde(rename = "kubernetes.io/serviceAccount.name")]
    service_account: String,
    #[serde(rename = "kubernetes.io/readwrite")]
    access: String,
}

/// Answers a call, given its words without the driver's name.
#[must_use]
pub fn answer(words: &[String], homes: &Homes, says_capabilities: bool) -> Answer {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["init"] => Answer {
            capabilities: says_capabilities.then_some(Capabilities { attach: false }),
            ..Answer::success("Init ok.")
        },
        ["mount", target, options, ..] => mount(homes, Path::new(target), options),
        ["unmount", target, ..] => unmount(homes, Path::new(target)),
        [call, ..] => Answer::not_supported(&format!("there is no call {call} with these arguments")),
        [] => Answer::not_supported("no call was given"),
    }
}

fn mount(homes: &Homes, target: &Path, options: &str) -> Answer {
    let volume = match read(target, options) {
        Ok(volume) => volume,
        Err(reason) => return Answer::failure(format!("Incomplete inputs: {reason}")),
    };
    match volume::publish(homes, &volume) {
        Ok(()) => Answer::success("Mount ok."),
        Err(error) => Answer::failure(format!("Failure to mount: {error}")),
    }
}

fn read(target: &Path, options: &str) -> Result<Volume, String> {
    let Pod { uid, name: pod, namespace, service_account, access } =
        serde_json::from_str(options).map_err(|error| error.to_string())?;
    if pod.is_empty() || namespace.is_empty() {
        return Err("the options do not name the pod".to_owned());
    }
    let name = VolumeName::parse(&uid).map_err(|error| format!("the pod's uid: {error}"))?;
    let owner = Credentials { uid, name: pod, namespace, service_account };
    Ok(Volume { name, target: target.to_owned(), is_read_only: access == "ro", owner })
}

fn unmount(homes: &Homes, target: &Path) -> Answer {
    let Some(name) = uid(target) else {
        return Answer::failure(format!("Failure to notify nodeagent dir {}", target.display()));
    };
    match volume::unpublish(homes, &name, target) {
        Ok(()) => Answer::success("Unmount Ok"),
        Err(error) => Answer::failure(format!("Failure to unmount: {error}")),
    }
}

/// The pod's uid in the path of a volume: `<kubelet>/pods/<uid>/volumes/nodeagent~uds/<name>`, wherever the kubelet's
/// folder is.
fn uid(target: &Path) -> Option<VolumeName> {
    let parts: Vec<&str> = target
        .components()
        .filter_map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        })
        .collect();
    let pods = parts.windows(3).rposition(|window| window[0] == "pods" && window[2] == "volumes")?;
    VolumeName::parse(parts[pods + 1]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;
    use testkit::Folder;

    fn said(words: &[&str], says_capabilities: bool) -> (String, u8) {
        let folder = Folder::new("flexvol-calls").unwrap();
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let answer = answer(&words, &Homes::under(folder.path()), says_capabilities);
        (answer.to_string(), answer.code())
    }

    #[test]
    fn answers_are_calicos() {
        for (words, says_capabilities, expected, code) in [
            (
                &["init"][..],
                true,
                r#"{"status":"Success","message":"Init ok.","capabilities":{"attach":false}}"#,
                0,
            ),
            (&["init"], false, r#"{"status":"Success","message":"Init ok."}"#, 0),
            (
                &["getvolumename", "{}"],
                true,
                r#"{"status":"Not supported","message":"there is no call getvolumename with these arguments"}"#,
                0,
            ),
            (
                &["mount", "/x"],
                true,
                r#"{"status":"Not supported","message":"there is no call mount with these arguments"}"#,
                0,
            ),
            (&[], true, r#"{"status":"Not supported","message":"no call was given"}"#, 0),
            (
                &["unmount", "/"],
                true,
                r#"{"status":"Failure","message":"Failure to notify nodeagent dir /"}"#,
                1,
            ),
        ] {
            assert_eq!(said(words, says_capabilities), (expected.to_owned(), code), "{words:?}");
        }
        for (options, reason) in [
            ("", "Incomplete inputs: EOF"),
            ("{}", "do not name the pod"),
            (r#"{"kubernetes.io/pod.name":"a","kubernetes.io/pod.namespace":"b"}"#, "the pod's uid"),
            (
                r#"{"kubernetes.io/pod.name":"a","kubernetes.io/pod.namespace":"b","kubernetes.io/pod.uid":"../../x"}"#,
                "the pod's uid",
            ),
        ] {
            let (text, code) = said(&["mount", "/a/b/c/d", options], true);
            assert!(
                text.starts_with(r#"{"status":"Failure""#) && text.contains(reason) && code == 1,
                "{options}: {text}"
            );
        }
    }

    #[test]
    fn uids_in_paths_of_kubelets() {
        let found = |path: &str| uid(Path::new(path)).map(|name| name.to_string());
        for (path, expected) in [
            ("/var/lib/kubelet/pods/u-1/volumes/nodeagent~uds/test-volume/", Some("u-1")),
            ("/var/snap/microk8s/common/var/lib/kubelet/pods/u-2/volumes/nodeagent~uds/v", Some("u-2")),
            ("/var/lib/kubelet/pods", None),
            ("/a/b/c/d/e/f", None),
            ("/var/lib/kubelet/pods/../volumes/x", None),
        ] {
            assert_eq!(found(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn an_unreadable_file_is_ignored_and_named() {
        let with = |text: &str| Configuration::read(&Variables::default().with_files([(FILE, text)]));
        let usual = Configuration::read(&Variables::default().with_files([("/other", "")]));
        assert!(usual.says_capabilities && usual.problems.is_empty());
        let set =
            with(r#"{"k8s_version": "1.7", "log_level": "INFO", "nodeagent_management_home": "/run/x"}"#);
        assert!(!set.says_capabilities && set.level == LevelFilter::INFO);
        assert_eq!(set.homes, Homes::under(Path::new("/run/x")));
        assert_eq!(with("{").problems.len(), 1);
        assert_eq!(with(r#"{"log_level": "loud"}"#).problems.len(), 1);
    }
}
