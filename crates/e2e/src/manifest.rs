//! Changes only the `image:` lines of a manifest, like a user who replaces Calico with ours. Pure.

use crate::images::FLANNEL;

/// The registry in the references of our images.
pub(crate) const REGISTRY: &str = "tortie.test/calico";
/// Their tag.
pub(crate) const TAG: &str = "e2e";

/// The source of the installed images: a registry with its path, and a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) registry: &'static str,
    pub(crate) tag: &'static str,
}

pub(crate) const OURS: Source = Source { registry: REGISTRY, tag: TAG };

/// The names of our images, which are Calico's.
const NAMES: [&str; 10] = [
    "apiserver",
    "calico",
    "cni",
    "ctl",
    "goldmane",
    "kube-controllers",
    "node",
    "typha",
    "webhooks",
    "whisker-backend",
];

/// The manifest with these images instead of Calico's, and with the replacement of flannel; others stay.
pub(crate) fn with_images(text: &str, source: Source) -> String {
    text.lines().map(|line| with_image(line, source).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

fn with_image(line: &str, source: Source) -> Option<String> {
    let (before, reference) = line.split_once("image:")?;
    if !before.trim_start_matches([' ', '-']).is_empty() {
        return None;
    }
    let reference = reference.trim().trim_matches(['"', '\'']);
    // The last part of the path, without a digest and without a tag.
    let name = reference.split('@').next()?.rsplit('/').next()?.split(':').next()?;
    if name == "flannel" {
        return Some(format!("{before}image: {FLANNEL}"));
    }
    NAMES.contains(&name).then(|| format!("{before}image: {}/{name}:{}", source.registry, source.tag))
}

#[cfg(test)]
mod tests {
    use super::{OURS, Source, with_images};

    #[test]
    fn only_our_names_change() {
        let text = "\
spec:
  - image: quay.io/calico/node:v3.32.1
    image: \"docker.io/calico/kube-controllers@sha256:00\"
    image: docker.io/flannel/flannel:v0.24
    image: docker.io/library/busybox:1
    # image: quay.io/calico/node:v1
    description: image: nothing
";
        let expected = "\
spec:
  - image: tortie.test/calico/node:e2e
    image: tortie.test/calico/kube-controllers:e2e
    image: tortie.test/flannel:1
    image: docker.io/library/busybox:1
    # image: quay.io/calico/node:v1
    description: image: nothing
";
        assert_eq!(with_images(text, OURS), expected);
    }

    /// The command in docs/migrate.md for users who change their manifest themselves.
    #[test]
    fn the_command_of_the_guide_changes_the_same_lines() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrate.md");
        let page = std::fs::read_to_string(page).unwrap();
        let line = page.lines().find(|line| line.starts_with("sed -E")).expect("the guide has the command");
        let (command, _) = line.split_once(" | kubectl apply").expect("it ends in kubectl");
        let command = command.strip_suffix(" calico.yaml").expect("it reads calico.yaml");
        let text = "  - image: quay.io/calico/node:v3.32.1\n    image: docker.io/calico/kube-controllers:v3.26.5\n    \
                    image: docker.io/library/busybox:1\n";
        let mut sed = std::process::Command::new("sh");
        sed.args(["-c", command]);
        let output = testkit::finish(sed, text).unwrap();
        let wanted = Source { registry: "registry.example.org/tortie", tag: "v0.1.0" };
        assert_eq!(String::from_utf8_lossy(&output.stdout), with_images(text, wanted), "{output:?}");
    }
}
