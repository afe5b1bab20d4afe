//! The programs in pods besides busybox: `nc`, `curl`, `wget`, `dig` and `getent`, as far as Kubernetes' own tests use
//! them, and the traffic during a swap.
//!
//! This program is in the images of those pods under these names. It rejects unknown options, so that a test which
//! needs more fails with the option's name.

mod curl;
mod dig;
mod message;
mod nc;
mod traffic;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;

/// The names under which this program acts as a tool.
pub(crate) const NAMES: [&str; 6] = ["curl", "dig", "getent", "nc", "traffic", "wget"];

/// Runs as the program with this name; `None` if the name is not one of these.
pub(crate) fn by_name(name: &str, arguments: &[String]) -> Option<ExitCode> {
    let code = match name {
        "curl" => curl::run(arguments),
        "dig" => dig::run(arguments),
        "getent" => getent(arguments),
        "nc" => nc::run(arguments),
        "traffic" => traffic::run(arguments),
        "wget" => curl::run(&curl::of_wget(arguments)),
        _ => return None,
    };
    Some(ExitCode::from(code))
}

/// Prints an error of the program with this name; returns its exit code.
#[expect(clippy::print_stderr, reason = "a program in a pod that talks to a test")]
fn complain(name: &str, what: &str, code: u8) -> u8 {
    eprintln!("{name}: {what}");
    code
}

/// The first address of a host.
fn find(host: &str, port: u16) -> Option<SocketAddr> {
    (host.trim_start_matches('[').trim_end_matches(']'), port).to_socket_addrs().ok()?.next()
}

/// `getent hosts NAME`.
fn getent(arguments: &[String]) -> u8 {
    let [database, name] = arguments else { return complain("getent", "usage: getent hosts NAME", 1) };
    if database != "hosts" {
        return complain("getent", &format!("no database {database}"), 1);
    }
    match find(name, 0) {
        Some(address) => {
            println!("{} {name}", address.ip());
            0
        }
        None => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::{by_name, getent};

    #[test]
    fn other_names_are_ignored() {
        assert!(by_name("e2e", &[]).is_none());
        assert_eq!(getent(&["hosts".to_owned(), "127.0.0.1".to_owned()]), 0);
        assert_eq!(getent(&["passwd".to_owned(), "root".to_owned()]), 1);
    }
}
