// A rule in its own words: what stands in the policy that decided.

import { policyName } from "../format.ts";
import type { Hit } from "../model.ts";
import { useOnce } from "../once.ts";
import { toYaml, type StoredPolicy } from "../yaml.ts";

export type Direction = "ingress" | "egress";

export function RuleText({ hit, direction }: { hit: Hit; direction: Direction }) {
  const policy = hit.kind === "EndOfTier" ? hit.trigger : hit.kind === "Profile" ? null : hit;
  const question = policy && { kind: policy.kind, namespace: policy.namespace, name: policy.name, tier: hit.tier };
  const { value, problem } = useOnce<StoredPolicy>("api/v1/policy", question);
  if (!policy) return null;
  if (problem) return <p class="rule-text quiet" title={problem}>{problem}</p>;
  if (!value) return <p class="rule-text quiet">reading {policyName(policy)} …</p>;
  const rules = value.spec[direction] ?? [];
  if (hit.kind === "EndOfTier") {
    return (
      <div class="rule-text">
        <p class="quiet">
          {policyName(policy)} selects it, and {rules.length === 0 ? `has no ${direction} rule` : rules.length === 1 ? "its one rule does not match" : `none of its ${rules.length} rules match`}:
        </p>
        {rules.length > 0 && <pre>{toYaml(rules)}</pre>}
      </div>
    );
  }
  const rule = rules[hit.rule_index];
  return rule === undefined ? (
    <p class="rule-text quiet">The policy has changed since: it has no {direction} rule {hit.rule_index} now.</p>
  ) : (
    <pre class="rule-text">{toYaml([rule])}</pre>
  );
}
