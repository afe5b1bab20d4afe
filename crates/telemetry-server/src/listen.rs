//! Listens at all costs: a port that is taken, or an address that does not exist yet, is retried for as long as the
//! component runs. The component's actual work must never wait for its pages.

use std::io;
use std::time::Duration;
use tokio::net::TcpListener;

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// What is served there, for the log.
    pub what: &'static str,
    /// A name or an address; empty for all addresses of both families.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// Listens at the address as soon as that is possible.
pub(crate) async fn listen(address: &Address) -> TcpListener {
    let Address { what, host, port } = address;
    let mut attempts: u32 = 0;
    loop {
        match bind(host, *port).await {
            Ok(listener) => {
                if attempts > 0 {
                    tracing::info!(what, host, port, attempts, "the port is free now; listening");
                }
                return listener;
            }
            Err(error) => {
                attempts = attempts.saturating_add(1);
                // Logged after 1, 2, 4, 8 ... attempts: less and less often.
                if attempts.is_power_of_two() {
                    tracing::warn!(%error, host, "cannot listen on port {port} for {what}; trying again every second");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn bind(host: &str, port: u16) -> io::Result<TcpListener> {
    if !host.is_empty() {
        return TcpListener::bind((host, port)).await;
    }
    match TcpListener::bind(("::", port)).await {
        // Listening on IPv4 alone would hide that another process has the IPv6 port.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_) => TcpListener::bind(("0.0.0.0", port)).await,
        listener => listener,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;
    use tokio::net::TcpStream;

    /// A port that is currently free.
    async fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn a_taken_port_is_retried_until_it_is_free() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let address = Address { what: "metrics", host: "127.0.0.1".into(), port };
        let task = tokio::spawn(async move { listen(&address).await });
        // Longer than several attempts take: it neither gives up nor succeeds.
        let mut task = task;
        assert!(tokio::time::timeout(Duration::from_millis(2500), &mut task).await.is_err());
        drop(taken);
        let listener = tokio::time::timeout(Duration::from_secs(60), task).await.expect("in time").unwrap();
        assert_eq!(listener.local_addr().unwrap().port(), port);
    }

    #[tokio::test]
    async fn no_host_means_both_families() {
        let port = free_port().await;
        let listener = listen(&Address { what: "metrics", host: String::new(), port }).await;
        TcpStream::connect(("127.0.0.1", port)).await.expect("IPv4");
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok() {
            TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.expect("IPv6");
        }
        drop(listener);
    }
}
