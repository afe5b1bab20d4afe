//! The kubeconfig that the CNI plugin reads: one cluster `local`, one user `calico`, one context `calico-context`.
//!
//! The names are Calico's, because people and programs look for them. The file contains a token and is for root only.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io;
use std::path::Path;

/// The mode of the file: only its owner has access.
pub const MODE: u32 = 0o600;

/// How the server's certificate is verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust<'a> {
    /// Against these certificates, in PEM; if empty, against the system's.
    Authority(&'a str),
    /// Not verified.
    Nothing,
}

/// Returns the text of the file.
#[must_use]
pub fn render(server: &str, trust: Trust<'_>, token: &str) -> String {
    let trust = match trust {
        Trust::Authority(authority) => {
            format!("certificate-authority-data: \"{}\"", STANDARD.encode(authority))
        }
        Trust::Nothing => "insecure-skip-tls-verify: true".to_owned(),
    };
    format!(
        "# Kubeconfig file for Calico CNI plugin. Written and refreshed by this node's agent: do not edit.\n\
         apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: local\n  \
           cluster:\n    \
             server: {server}\n    \
             {trust}\n\
         users:\n\
         - name: calico\n  \
           user:\n    \
             token: \"{token}\"\n\
         contexts:\n\
         - name: calico-context\n  \
           context:\n    \
             cluster: local\n    \
             user: calico\n\
         current-context: calico-context\n"
    )
}

/// Writes the file for its owner only, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    daemon::files::write(path, text.as_bytes(), MODE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::Kubeconfig;

    #[test]
    fn the_text_is_a_kubeconfig() {
        let text = render("https://[fd00::1]:443", Trust::Authority("PEM"), "abc.def.ghi");
        let read = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        assert_eq!(read.current_context.as_deref(), Some("calico-context"));
        let cluster = read.clusters[0].cluster.as_ref().expect("a cluster");
        assert_eq!(cluster.server.as_deref(), Some("https://[fd00::1]:443"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("UEVN"));
        let context = read.contexts[0].context.as_ref().expect("a context");
        assert_eq!((context.cluster.as_str(), context.user.as_deref()), ("local", Some("calico")));
        let text = render("https://10.0.0.1:443", Trust::Nothing, "t");
        let read = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        assert_eq!(
            read.clusters[0].cluster.as_ref().and_then(|cluster| cluster.insecure_skip_tls_verify),
            Some(true)
        );
    }
}
