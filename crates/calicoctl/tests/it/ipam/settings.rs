//! `ipam configure` and `ipam split`.

use super::{LOCKED, cni, embedded_with, get, golden, put};

const CONFIG: &str = "/calico/ipam/v2/config";

#[test]
fn settings_are_changed_one_by_one_and_shown() {
    let shell = cni();
    golden("show-configuration-default.txt", &shell.run("ipam show --show-configuration").text());
    assert_eq!(get(&shell, CONFIG), None, "reading writes nothing");
    assert_eq!(
        shell.run("ipam configure --strictaffinity=true --max-blocks-per-host=4").text(),
        "Successfully set StrictAffinity to: true\nSuccessfully set MaxBlocksPerHost to: 4\n"
    );
    assert_eq!(
        shell.run("ipam configure --kubevirt-ip-persistence Disabled --ip-cooldown-seconds 30").text(),
        "Successfully set KubeVirtVMAddressPersistence to: Disabled\nSuccessfully set IPCooldownSeconds to: 30\n"
    );
    assert_eq!(
        get(&shell, CONFIG).as_deref(),
        Some(
            r#"{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":4,"kubeVirtVMAddressPersistence":"Disabled","ipCooldownSeconds":30}"#
        )
    );
    golden("show-configuration.txt", &shell.run("ipam show --show-configuration").text());
    // No user created an object for these settings; they are shown as one nevertheless.
    for line in ["get ipamconfig -o wide", "get ipamconfig default -o wide"] {
        assert_eq!(
            shell.run(line).text(),
            "NAME      STRICTAFFINITY   AUTOALLOCATEBLOCKS   MAXBLOCKSPERHOST   \n\
             default   true             true                 4                  \n\n"
        );
    }
    let yaml = shell.run("get ipamconfig default -o yaml").text();
    assert!(yaml.contains("  ipCooldownSeconds: 30\n  kubeVirtVMAddressPersistence: Disabled\n"), "{yaml}");
    assert!(shell.run("get ipamconfig other").error().contains("does not exist"));
    assert_eq!(embedded_with(&[]).run("get ipamconfig -o name").text(), "");
}

#[test]
fn wrong_settings_are_refused() {
    let shell = embedded_with(&[]);
    for (flags, message) in [
        ("", "at least one configuration option must be specified"),
        ("--ip-cooldown-seconds=-1", "at least one configuration option must be specified"),
        ("--strictaffinity=maybe", "invalid value. Use true or false to set strictaffinity"),
        ("--max-blocks-per-host=many", "invalid value for maxblockhost. Use a valid number"),
        ("--max-blocks-per-host=-3", "invalid value for maxblockhost. Use a valid number"),
        (
            "--kubevirt-ip-persistence=On",
            "invalid value for --kubevirt-ip-persistence. Use Enabled or Disabled",
        ),
        ("--max-blocks-per-host=3", "error: MaxBlocksPerHost requires StrictAffinity to be enabled"),
    ] {
        assert_eq!(shell.run(&format!("ipam configure {flags}")).error(), format!("{message}\n"), "{flags}");
    }
    assert_eq!(get(&shell, CONFIG), None);
    // In etcd, a record without the field means that blocks are not allocated automatically.
    put(&shell, &[(CONFIG, r#"{"strict_affinity":true}"#)]);
    assert_eq!(
        shell.run("ipam configure --strictaffinity=f").error(),
        "error: Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time\n"
    );
}

#[test]
fn a_pool_is_split_and_its_blocks_stay() {
    let shell = cni();
    for (line, message) in [
        ("ipam split 4", "no name or CIDR provided. Provide a name or CIDR to denote the IP pool to split\n"),
        (
            "ipam split 4 --name=pool",
            "datastore is not locked. Run the `calicoctl datastore migrate lock` command in order split the IP pools\n",
        ),
    ] {
        assert_eq!(shell.run(line).error(), message);
    }
    put(&shell, &[LOCKED]);
    for (line, message) in [
        (
            "ipam split 3 --name=pool",
            "error splitting the CIDR 172.16.0.0/16 into 3 CIDRs: number to split CIDR into is not a valid power of 2: 3",
        ),
        (
            "ipam split 16384 --name=pool",
            "error splitting the CIDR 172.16.0.0/16 into 16384 CIDRs: pools as small as 172.16.0.0/30 would not hold one block of size 29",
        ),
        ("ipam split 4 --cidr=10.0.0.0/8", "unable to find IP pool  covering the specified CIDR 10.0.0.0/8"),
        (
            "ipam split 4 --name=other",
            "unable to find IP pool with name other: resource does not exist: IPPool(other)",
        ),
        (
            "ipam split four --name=pool",
            "error reading number to split IP pools into. four is not a valid number",
        ),
    ] {
        let error = shell.run(line).error();
        assert!(error.starts_with(message), "{error}");
    }
    let pool = get(&shell, "/calico/resources/v3/projectcalico.org/ippools/pool").expect("the pool");
    assert!(!pool.contains("disabled"), "nothing was written before everything was checked: {pool}");
    assert_eq!(
        shell.run("ipam split 2 --cidr=172.16.0.0/16").text(),
        "IP Pool pool was successfully split into 2 smaller pools.\nCreated split-pool-0 with CIDR 172.16.0.0/17.\n\
         Created split-pool-1 with CIDR 172.16.128.0/17.\nCheck the new pools with `calicoctl get ippools -o wide`, then run `calicoctl datastore migrate unlock`.\n"
    );
    golden("show-split.txt", &shell.run("ipam show --show-blocks").text());
}

#[test]
fn an_interrupted_split_is_continued() {
    let shell = cni();
    put(&shell, &[LOCKED]);
    shell.run("ipam split 2 --name=pool").text();
    // As if it had stopped before the last child: the parent still exists, disabled, and one child is missing.
    let parent = get(&shell, "/calico/resources/v3/projectcalico.org/ippools/split-pool-0").expect("a child");
    let parent = parent
        .replace("split-pool-0", "pool")
        .replace("172.16.0.0/17", "172.16.0.0/16")
        .replace(r#""blockSize""#, r#""disabled":true,"blockSize""#);
    put(
        &shell,
        &[
            ("/calico/resources/v3/projectcalico.org/ippools/pool", parent.as_str()),
            ("/calico/resources/v3/projectcalico.org/ippools/split-pool-1", ""),
        ],
    );
    shell.run("ipam split 2 --name=pool").text();
    golden("show-split.txt", &shell.run("ipam show --show-blocks").text());
}
