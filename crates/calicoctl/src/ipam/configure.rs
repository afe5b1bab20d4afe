//! `calicoctl ipam configure`: the settings of address management.

use super::store::{ATTEMPTS, Store, existing};
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::version_gate::Access;
use api::VMAddressPersistence;
use ipam::default_config;
use model::{IpamConfig, Key, KvPair, Value};

/// Change the settings of address management.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  # Nodes only use addresses of their own blocks.\n  \
                        calicoctl ipam configure --strictaffinity=true\n\n  \
                        # Leave released addresses alone for a minute.\n  \
                        calicoctl ipam configure --ip-cooldown-seconds=60")]
pub(crate) struct ConfigureArgs {
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// Set StrictAffinity to true/false.
    #[arg(long, value_name = "true/false")]
    pub strictaffinity: Option<String>,
    /// Set the maximum number of blocks that can be affine to a host.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub max_blocks_per_host: Option<String>,
    /// Whether KubeVirt machines keep their addresses (Enabled|Disabled).
    #[arg(long, value_name = "Enabled|Disabled")]
    pub kubevirt_ip_persistence: Option<String>,
    /// Set the minimum time between release and re-allocation of an address.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub ip_cooldown_seconds: Option<i32>,
}

/// The requested changes.
struct Change {
    strict_affinity: Option<bool>,
    max_blocks_per_host: Option<i32>,
    persistence: Option<VMAddressPersistence>,
    ip_cooldown_seconds: Option<i32>,
}

/// Runs the command.
///
/// # Errors
/// When a value is wrong, the settings contradict each other, or the datastore fails.
pub(crate) async fn run(args: &ConfigureArgs, context: &mut Context) -> Result<()> {
    let change = Change::read(args)?;
    let client = context.connect_for(&args.config, Access::Write).await?;
    change.write(&Store::new(&client)).await.map_err(|failure| Failure::new(format!("error: {failure}")))?;
    let lines = [
        ("StrictAffinity", change.strict_affinity.map(|value| value.to_string())),
        ("MaxBlocksPerHost", change.max_blocks_per_host.map(|value| value.to_string())),
        ("KubeVirtVMAddressPersistence", change.persistence.map(|value| value.as_str().to_owned())),
        ("IPCooldownSeconds", change.ip_cooldown_seconds.map(|value| value.to_string())),
    ];
    for (property, value) in lines {
        if let Some(value) = value {
            context.print(&format!("Successfully set {property} to: {value}\n"))?;
        }
    }
    Ok(())
}

impl Change {
    fn read(args: &ConfigureArgs) -> Result<Self> {
        // A flag with an empty value counts as not given.
        let given = |flag: &Option<String>| flag.clone().filter(|value| !value.is_empty());
        let strict_affinity = given(&args.strictaffinity)
            .map(|value| {
                go_bool(&value)
                    .ok_or_else(|| Failure::new("invalid value. Use true or false to set strictaffinity"))
            })
            .transpose()?;
        let max_blocks_per_host = given(&args.max_blocks_per_host)
            .map(|value| {
                let number = value.parse().ok().filter(|number| *number >= 0);
                number.ok_or_else(|| Failure::new("invalid value for maxblockhost. Use a valid number"))
            })
            .transpose()?;
        let persistence = given(&args.kubevirt_ip_persistence)
            .map(|value| match VMAddressPersistence::from(value.as_str()) {
                VMAddressPersistence::Other(_) => {
                    Err(Failure::new("invalid value for --kubevirt-ip-persistence. Use Enabled or Disabled"))
                }
                known => Ok(known),
            })
            .transpose()?;
        let ip_cooldown_seconds = args.ip_cooldown_seconds.filter(|seconds| *seconds >= 0);
        let change = Self { strict_affinity, max_blocks_per_host, persistence, ip_cooldown_seconds };
        if change.is_nothing() {
            return Err(Failure::new("at least one configuration option must be specified"));
        }
        Ok(change)
    }

    fn is_nothing(&self) -> bool {
        self.strict_affinity.is_none()
            && self.max_blocks_per_host.is_none()
            && self.persistence.is_none()
            && self.ip_cooldown_seconds.is_none()
    }

    fn apply(&self, config: &mut IpamConfig) -> Result<()> {
        config.strict_affinity = self.strict_affinity.unwrap_or(config.strict_affinity);
        config.max_blocks_per_host = self.max_blocks_per_host.unwrap_or(config.max_blocks_per_host);
        if self.persistence.is_some() {
            config.kubevirt_vm_address_persistence.clone_from(&self.persistence);
        }
        config.ip_cooldown_seconds = self.ip_cooldown_seconds.unwrap_or(config.ip_cooldown_seconds);
        if !config.strict_affinity && !config.auto_allocate_blocks {
            return Err(Failure::new(
                "Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time",
            ));
        }
        if config.max_blocks_per_host > 0 && !config.strict_affinity {
            return Err(Failure::new("MaxBlocksPerHost requires StrictAffinity to be enabled"));
        }
        Ok(())
    }

    /// Writes the settings; starts over if another client changed them meanwhile.
    async fn write(&self, store: &Store) -> Result<()> {
        let backend = store.backend();
        for _ in 0..ATTEMPTS {
            let entry = existing(backend.get(&Key::IpamConfig, None).await)?;
            let outcome = match entry {
                Some(mut entry) => {
                    let Value::IpamConfig(config) = &mut entry.value else { return Ok(()) };
                    let before = config.clone();
                    self.apply(config)?;
                    if *config == before {
                        return Ok(());
                    }
                    backend.update(&entry).await
                }
                None => {
                    let mut config = default_config();
                    self.apply(&mut config)?;
                    if config == default_config() {
                        return Ok(());
                    }
                    backend.create(&KvPair::new(Key::IpamConfig, Value::IpamConfig(config))).await
                }
            };
            match outcome {
                Err(error)
                    if error.is_conflict() || error.is_already_exists() || error.is_does_not_exist() => {}
                outcome => return Ok(outcome.map(|_| ())?),
            }
        }
        Err(Failure::new("Max retries hit - excessive concurrent IPAM requests"))
    }
}

/// Parses a boolean like Go.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}
