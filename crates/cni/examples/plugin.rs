//! The plugins as a program for tests: `calico-ipam` if started by a link of that name, otherwise `calico`.
//!
//! Releases use the multi-call program `tortie`; tests need a program that has fault points. With `AGENT_SOCKET` set it
//! is the agent instead, so that tests can kill it.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    if let Some(socket) = std::env::var_os("AGENT_SOCKET") {
        return serve(std::path::Path::new(&socket));
    }
    let name = std::env::args().next().unwrap_or_default();
    let program = if name.ends_with("calico-ipam") { cni::Program::Ipam } else { cni::Program::Plugin };
    ExitCode::from(cni::run_in_process(program))
}

fn serve(socket: &std::path::Path) -> ExitCode {
    let environment: cni::Environment = std::env::vars().collect();
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
    else {
        return ExitCode::FAILURE;
    };
    let outcome: std::io::Result<()> = runtime.block_on(async {
        let listener = cni::for_tests::bind(socket)?;
        let state = cni::for_tests::AgentState::starting("the datastore");
        let node = environment.get("NODENAME").cloned().unwrap_or_default();
        let opened = cni::for_tests::Store::open(&cni::NetConf::default(), &environment).await;
        if !environment.contains_key("AGENT_NEVER_READY")
            && let Ok(store) = opened
        {
            let paths = cni::HostPaths::of(&environment);
            state.set_ready(cni::for_tests::Context::new(Arc::new(store.warmed(&node)), paths, true));
        }
        cni::for_tests::serve(listener, state).await
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // For the log of the test that started it.
            let _ = writeln!(std::io::stderr(), "the agent ended: {error}");
            ExitCode::FAILURE
        }
    }
}
