//! Real servers for tests and benchmarks: etcd and kube-apiserver, started on loopback, ended with the test; hosts and
//! pods as network namespaces ([`network`]); and whole machines with a kernel of their own ([`guest`]).
//!
//! A missing program is an error with instructions to install it, never a skipped test. Every process is started with a
//! parent-death signal, so that nothing outlives a test that was killed; every folder's name contains the process id of
//! its creator, so that a later run removes what a killed one left. Other processes and folders are never touched.

mod bird;
mod certificates;
mod comparison;
mod dice;
mod etcd;
mod eventually;
mod folder;
pub mod guest;
pub mod heap;
mod kubernetes;
pub mod network;
mod process;
pub mod random_kubernetes;
mod report;
pub mod roles;
mod scripted_server;

pub use bird::Bird;
pub use certificates::{Authority, KeyAndCertificate};
pub use comparison::{compare_on_request, number_from_environment};
pub use dice::Dice;
pub use etcd::{Etcd, EtcdOptions};
pub use eventually::{Look, PATIENCE, eventually, eventually_async};
pub use folder::Folder;
pub use kubernetes::{ApiServer, kubernetes_program};
pub use process::{Process, Signal, example, finish, free_port, program, signal};
pub use report::{Report, measured_program, median};
pub use scripted_server::ScriptedServer;

#[cfg(test)]
mod tests {
    use super::{ApiServer, Etcd};

    #[test]
    fn etcd_and_kube_apiserver_start_answer_and_restart() -> anyhow::Result<()> {
        let mut etcd = Etcd::start()?;
        let mut api_server = ApiServer::start(&etcd.endpoint())?;
        let output = api_server.kubectl(&["get", "namespaces", "-o", "name"])?;
        assert!(String::from_utf8_lossy(&output.stdout).contains("namespace/default"), "{output:?}");
        etcd.kill();
        etcd.restart()?;
        api_server.restart()?;
        let output = api_server.kubectl(&["get", "--raw", "/livez"])?;
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok");
        Ok(())
    }
}
