//! The steps to create a volume, computed from the existing state. Pure.

/// The mounts of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How many of our file systems are stacked at the target: Calico's driver mounts another one for each repeated
    /// call.
    pub(crate) layers: usize,
    /// Whether the topmost file system is read-only.
    pub(crate) is_sealed: bool,
    /// How many mounts are at the inner folder.
    pub(crate) inner: usize,
    /// Whether the topmost of those is the volume's current folder.
    pub(crate) leads_home: bool,
    /// Whether that mount has the restrictive options.
    pub(crate) is_inner_harmless: bool,
    /// Whether that mount is read-only.
    pub(crate) is_inner_read_only: bool,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Unmounts the inner folder: it leads to a folder that is gone.
    Leave,
    /// Mounts a file system at the target.
    Mount,
    /// Mounts the volume's folder inside.
    Bind,
    /// Sets restrictive options on the inner mount.
    Restrict,
    /// Makes the file system at the target read-only.
    Seal,
}

/// The steps in order; none if everything exists.
pub(crate) fn steps(seen: &Seen, is_read_only: bool) -> Vec<Step> {
    let mut steps = Vec::new();
    if seen.layers == 0 {
        steps.push(Step::Mount);
    }
    if !seen.leads_home {
        steps.extend(std::iter::repeat_n(Step::Leave, seen.inner));
        steps.push(Step::Bind);
    }
    let is_restricted = seen.is_inner_harmless && seen.is_inner_read_only == is_read_only;
    if !seen.leads_home || !is_restricted {
        steps.push(Step::Restrict);
    }
    if is_read_only && (seen.layers == 0 || !seen.is_sealed) {
        steps.push(Step::Seal);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const COMPLETE: Seen = Seen {
        layers: 1,
        is_sealed: false,
        inner: 1,
        leads_home: true,
        is_inner_harmless: true,
        is_inner_read_only: false,
    };

    /// The state after these steps.
    fn after(mut seen: Seen, steps: &[Step], is_read_only: bool) -> Seen {
        for step in steps {
            match step {
                Step::Leave => seen.inner -= 1,
                Step::Mount => (seen.layers, seen.is_sealed) = (seen.layers + 1, false),
                Step::Bind => {
                    assert!(seen.layers > 0 && !seen.is_sealed, "nothing can be made there");
                    seen.inner += 1;
                    (seen.leads_home, seen.is_inner_harmless, seen.is_inner_read_only) = (true, false, false);
                }
                Step::Restrict => (seen.is_inner_harmless, seen.is_inner_read_only) = (true, is_read_only),
                Step::Seal => seen.is_sealed = true,
            }
        }
        seen
    }

    #[test]
    fn volumes_are_completed_from_each_state_of_a_killed_process() {
        use Step::{Bind, Leave, Mount, Restrict, Seal};
        let nothing = Seen::default();
        let empty = Seen { layers: 1, ..nothing };
        let bound = Seen { is_inner_harmless: false, ..COMPLETE };
        let gone = Seen { leads_home: false, ..COMPLETE };
        let twice = Seen { layers: 2, inner: 1, ..COMPLETE };
        for (seen, is_read_only, expected) in [
            (nothing, false, &[Mount, Bind, Restrict][..]),
            (nothing, true, &[Mount, Bind, Restrict, Seal]),
            (empty, false, &[Bind, Restrict]),
            (bound, false, &[Restrict]),
            (COMPLETE, false, &[]),
            (COMPLETE, true, &[Restrict, Seal]),
            (Seen { is_inner_read_only: true, ..COMPLETE }, true, &[Seal]),
            (gone, false, &[Leave, Bind, Restrict]),
            (twice, false, &[]),
        ] {
            assert_eq!(steps(&seen, is_read_only), expected, "{seen:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_there_the_volume_is_complete_in_the_end_and_a_second_call_has_nothing_to_do(
            layers in 0_usize..3, inner in 0_usize..3, leads_home: bool, is_inner_harmless: bool, is_read_only: bool,
            done in 0_usize..6,
        ) {
            let inner = if layers == 0 { 0 } else { inner };
            let seen = Seen {
                layers, inner, leads_home: inner > 0 && leads_home, is_inner_harmless: inner > 0 && is_inner_harmless,
                ..Seen::default()
            };
            let first = steps(&seen, is_read_only);
            // Killed after some of the steps.
            let killed = after(seen, &first[..done.min(first.len())], is_read_only);
            let end = after(killed, &steps(&killed, is_read_only), is_read_only);
            prop_assert!(end.layers > 0 && end.leads_home && end.is_inner_harmless);
            prop_assert_eq!(end.is_inner_read_only, is_read_only);
            prop_assert_eq!(steps(&end, is_read_only), []);
        }
    }
}
