//! Known differences: identities, revisions and times always; and those that docs/differences.md lists.

use crate::Said;

/// The text without parts that differ from run to run.
pub(crate) fn masked(text: &str) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start().trim_start_matches('"');
        let is_masked = ["uid", "creationTimestamp", "resourceVersion", "clusterGUID"].iter().any(|field| {
            trimmed.strip_prefix(field).is_some_and(|rest| rest.starts_with(':') || rest.starts_with("\":"))
        });
        if is_masked {
            let (name, comma) = (line.split(':').next().unwrap_or_default(), line.trim_end().ends_with(','));
            out.push_str(&format!("{name}: MASKED{}\n", if comma { "," } else { "" }));
        } else {
            out.push_str(&without_guids(line));
        }
    }
    out
}

/// Replaces words of 32 hexadecimal digits, which are the identity of a cluster.
fn without_guids(line: &str) -> String {
    let is_guid = |word: &str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    line.split(' ').map(|word| if is_guid(word) { "MASKED" } else { word }).collect::<Vec<_>>().join(" ")
}

/// Indents each line.
pub(crate) fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    | {line}\n")).collect()
}

/// Whether the difference is one that docs/differences.md lists.
pub(crate) fn is_listed(line: &str, ours: &Said, theirs: &Said) -> bool {
    let both_fail = ours.code == Some(1) && theirs.code == Some(1);
    // Identities, empty lines and words without information.
    let plain = |text: &str| text.replace(" with error: <nil>", "").trim_end().to_owned();
    let alike = ours.code == theirs.code
        && plain(&ours.stdout) == plain(&theirs.stdout)
        && plain(&ours.stderr) == plain(&theirs.stderr);
    // Go panics: that is certainly a bug.
    let panics = theirs.code == Some(2) && theirs.stderr.starts_with("panic: ");
    // Calico prints one mistake in brackets, we print all of them with line and caret; on standard error or standard
    // output.
    let mistakes = both_fail && ours.stdout.is_empty() && !ours.stderr.is_empty();
    let replaced = line.contains("calicoctl replace") && both_fail;
    let patch_of_another_kind =
        line.contains("--type json") || line.contains("get felixconfiguration default");
    alike
        || panics
        || mistakes
        || replaced
        || patch_of_another_kind
        || only_ours(line)
        || is_help(line)
        || is_warning_only(ours, theirs)
        || is_broken_there(line)
}

/// Sizes that overflow, and the address of a variable instead of its value.
fn is_broken_there(line: &str) -> bool {
    matches!(
        line,
        "calicoctl ipam show"
            | "calicoctl ipam show --show-blocks"
            | "calicoctl ipam show --show-configuration"
    )
}

/// What only this program has: a format, a command of Calico's older releases, and a check without Kubernetes.
fn only_ours(line: &str) -> bool {
    line.contains("-o 'name'") || line.contains("calicoctl convert") || line.contains("calicoctl ipam check")
}

/// Our descriptions of commands are worded differently.
fn is_help(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    matches!(
        words[..],
        ["calicoctl"] | ["calicoctl", "ipam" | "datastore" | "node" | "cluster" | "version", ..]
    ) && words.len() <= 3
        || line.contains("migrate split")
}

/// Whether the only difference is our warning about something that Calico accepts silently.
fn is_warning_only(ours: &Said, theirs: &Said) -> bool {
    ours.code == theirs.code
        && ours.stdout == theirs.stdout
        && theirs.stderr.is_empty()
        && ours.stderr.starts_with("warning: ")
}
