//! Flags, named as Calico names them.

use std::path::PathBuf;

/// Flags of `confd`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Write the files once and exit, without starting BIRD
    #[arg(long)]
    pub run_once: bool,
    /// Keep the staged files that BIRD checked, next to their destinations
    #[arg(long)]
    pub keep_stage_file: bool,
    /// The folder with conf.d, whose `dest` lines determine where files are written; by default, in its folder config
    #[arg(long, value_name = "DIR", default_value = "/etc/calico/confd")]
    pub confdir: PathBuf,
    /// The folder of BIRD's control sockets
    #[arg(long, value_name = "DIR", default_value = "/var/run/calico")]
    pub run_dir: PathBuf,
    /// A file with the datastore's settings
    #[arg(long, value_name = "FILE")]
    pub calicoconfig: Option<PathBuf>,
}
