//! Warnings about objects that Calico's tool and ours accept, though they hardly do what their author meant.

use crate::document::report::{Diagnostic, Diagnostics};
use crate::document::tree::Node;
use crate::errors::FieldPath;
use crate::object::Resource;
use crate::resources::{Action, Rule};

/// Adds the warnings about an object.
pub(super) fn about(resource: &Resource, node: &Node, diagnostics: &mut Diagnostics) {
    let spec = FieldPath::new("spec");
    match resource {
        Resource::Profile(profile) => {
            actions(&profile.spec.ingress, &spec.child("ingress"), node, diagnostics);
            actions(&profile.spec.egress, &spec.child("egress"), node, diagnostics);
        }
        Resource::IPAMConfiguration(configuration) => {
            let path = spec.child("autoAllocateBlocks");
            let found = node.find(path.as_str());
            if !configuration.spec.auto_allocate_blocks
                && let Some(found) = found
                && !found.exact
            {
                let message =
                    "autoAllocateBlocks is not given, and false is stored: nodes take no new blocks";
                let help = "write `autoAllocateBlocks: true`, or false if that is what you mean".to_owned();
                diagnostics.warn(Diagnostic::new(found.span, path, message.to_owned()).with_help(help));
            }
        }
        _ => {}
    }
}

/// Warns of rules of a profile that have no action, an unknown one, or one that is meaningless in profiles.
fn actions(rules: &[Rule], list: &FieldPath, node: &Node, diagnostics: &mut Diagnostics) {
    for (index, rule) in rules.iter().enumerate() {
        let message = if rule.action.is_unset() {
            "this rule has no action, and allows what it matches".to_owned()
        } else if rule.action == Action::Pass {
            // The mark that records an allowed packet is still set when a tier passed the packet.
            "Pass in a profile decides nothing, and packets that a tier passed skip the rest of the profile here, \
             whether they match or not"
                .to_owned()
        } else if rule.action.is_known() {
            continue;
        } else {
            format!("`{}` is not an action: this rule denies what it matches", rule.action)
        };
        let path = list.index(index).child("action");
        let span = node.find(path.as_str()).map_or(node.span, |found| found.span);
        let help = "write one of: Allow, Deny, Log, Pass".to_owned();
        diagnostics.warn(Diagnostic::new(span, path, message).with_help(help));
    }
}
