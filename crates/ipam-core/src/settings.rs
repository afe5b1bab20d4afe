//! The settings of address management: the defaults, and contradictory settings.

use api::VMAddressPersistence;
use model::IpamConfig;

/// The default settings.
#[must_use]
pub fn default_config() -> IpamConfig {
    IpamConfig {
        auto_allocate_blocks: true,
        kubevirt_vm_address_persistence: Some(VMAddressPersistence::Enabled),
        ..IpamConfig::default()
    }
}

/// Checks that settings do not contradict each other.
///
/// # Errors
/// The contradiction, in Calico's words.
pub fn check(config: &IpamConfig) -> Result<(), &'static str> {
    if !config.strict_affinity && !config.auto_allocate_blocks {
        return Err("Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time");
    }
    if config.max_blocks_per_host > 0 && !config.strict_affinity {
        return Err("MaxBlocksPerHost requires StrictAffinity to be enabled");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_contradict_themselves_are_refused() {
        for (strict_affinity, auto_allocate_blocks, max_blocks_per_host, is_fine) in [
            (false, true, 0, true),
            (true, true, 5, true),
            (true, false, 0, true),
            (false, false, 0, false),
            (false, true, 5, false),
        ] {
            let config =
                IpamConfig { strict_affinity, auto_allocate_blocks, max_blocks_per_host, ..default_config() };
            assert_eq!(check(&config).is_ok(), is_fine, "{config:?}");
        }
        assert!(check(&default_config()).is_ok());
    }
}
