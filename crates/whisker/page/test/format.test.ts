import assert from "node:assert/strict";
import { test } from "node:test";
import { age, because, bytes, count, port, reason, verdict } from "../src/format.ts";
import type { Flow, Hit } from "../src/model.ts";

const hit = (more: Partial<Hit>): Hit => ({
  kind: "CalicoNetworkPolicy", name: "web", namespace: "shop", tier: "default", action: "Allow",
  policy_index: 0, rule_index: 2, trigger: null, ...more,
});

test("figures are short", () => {
  for (const [value, text] of [[0, "0 B"], [999, "999 B"], [1000, "1 kB"], [1536, "1.5 kB"], [123_456, "123 kB"], [5e9, "5 GB"], [2e18, "2000 PB"]] as const) {
    assert.equal(bytes(value), text);
  }
  for (const [value, text] of [[0, "0"], [9999, "9999"], [12_345, "12.3 k"], [2_500_000, "2.5 M"]] as const) assert.equal(count(value), text);
  for (const [value, text] of [[3.4, "3 s"], [61, "1 min"], [7300, "2 h"]] as const) assert.equal(age(value), text);
});

test("a decision says what it was due to", () => {
  assert.equal(because(hit({})), "shop/web, rule 2");
  assert.equal(because(hit({ kind: "EndOfTier", name: "", namespace: "", trigger: hit({}) })), "no rule of tier default matched (shop/web applies)");
  assert.equal(because(hit({ kind: "Profile", name: "kns.x", namespace: "", tier: "" })), "no policy applies");
  const flow = { policies: { enforced: [hit({ name: "first" }), hit({ namespace: "", name: "last" })], pending: null } } as Flow;
  assert.equal(reason(flow), "last, rule 2");
  assert.equal(reason({ policies: { enforced: null, pending: null } } as Flow), "no policy applies");
});

test("verdicts of today and of staged policies", () => {
  assert.equal(verdict({ action: "Allow" }), "allow");
  assert.equal(verdict({ action: "Allow", would: "Deny" }), "would-deny");
  assert.equal(verdict({ action: "Deny" }), "deny");
  assert.equal(verdict({ action: "Deny", would: "Allow" }), "would-allow");
  assert.equal(port({ protocol: "icmp", dest_port: 0 }), "icmp");
});
