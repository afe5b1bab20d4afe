//! Sources of flows: a Goldmane, the socket of this node, a file.

pub mod goldmane;
pub mod node;
pub mod seen;

use crate::args::SourceArgs;
use std::path::PathBuf;

/// A source of flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A server with Goldmane's API.
    Goldmane(goldmane::Server),
    /// The node, which connects to this socket.
    Node(PathBuf),
    /// A file; `None` is standard input.
    File(Option<PathBuf>),
}

const WHICH: &str = "no source of flows: name a Goldmane with --server or GOLDMANE_HOST, this node with --node, or a file with \
                     --input-file.\nA cluster's Goldmane can be reached by `kubectl port-forward -n calico-system service/goldmane 7443` \
                     and --server localhost:7443 --tls-server-name goldmane.calico-system.svc, with the files of the secret \
                     goldmane-key-pair";

/// The source that flags and variables select. A flag takes precedence over its variable.
///
/// # Errors
/// When they select none, or are incomplete.
pub fn choose(args: &SourceArgs, variable: &dyn Fn(&str) -> Option<String>) -> Result<Source, String> {
    if let Some(path) = &args.input_file {
        return Ok(Source::File(Some(path.clone()).filter(|path| path.as_os_str() != "-")));
    }
    if let Some(path) = &args.node {
        return Ok(Source::Node(path.clone()));
    }
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let Some(address) = args.server.clone().or_else(|| variable("GOLDMANE_HOST")) else {
        return Err(WHICH.to_owned());
    };
    let file =
        |flag: &Option<PathBuf>, name: &str| flag.clone().or_else(|| variable(name).map(PathBuf::from));
    let files = [
        file(&args.tls_ca, "CA_CERT_PATH"),
        file(&args.tls_cert, "TLS_CERT_PATH"),
        file(&args.tls_key, "TLS_KEY_PATH"),
    ];
    let tls = match files {
        [None, None, None] if args.tls_server_name.is_some() => {
            return Err("--tls-server-name needs --tls-ca, --tls-cert and --tls-key".to_owned());
        }
        [None, None, None] => None,
        [Some(authority), Some(certificate), Some(key)] => {
            Some(goldmane_api::connect::TlsPaths { authority, certificate, key })
        }
        _ => return Err("--tls-ca, --tls-cert and --tls-key (or CA_CERT_PATH, TLS_CERT_PATH and TLS_KEY_PATH) belong together".to_owned()),
    };
    Ok(Source::Goldmane(goldmane::Server { address, tls, name: args.tls_server_name.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_take_precedence_over_variables() {
        let variables = |name: &str| match name {
            "GOLDMANE_HOST" => Some("goldmane:7443".to_owned()),
            "TLS_KEY_PATH" => Some(String::new()),
            _ => None,
        };
        let address = |args: &SourceArgs| match choose(args, &variables) {
            Ok(Source::Goldmane(server)) => server.address,
            other => format!("{other:?}"),
        };
        assert_eq!(address(&SourceArgs::default()), "goldmane:7443");
        let args = SourceArgs { server: Some("other:1".into()), ..SourceArgs::default() };
        assert_eq!(address(&args), "other:1");
        let args = SourceArgs { input_file: Some("-".into()), ..SourceArgs::default() };
        assert_eq!(choose(&args, &variables), Ok(Source::File(None)));
        let args = SourceArgs { tls_ca: Some("ca.crt".into()), ..SourceArgs::default() };
        assert!(choose(&args, &variables).unwrap_err().contains("belong together"));
        assert!(choose(&SourceArgs::default(), &|_| None).unwrap_err().starts_with("no source of flows"));
    }
}
