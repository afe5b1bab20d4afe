import assert from "node:assert/strict";
import { test } from "node:test";
import { format, none, parameters, parse, policyText, request, toggled, togglePolicy } from "../src/filters.ts";

test("Whisker's links are understood, and written back as they were", () => {
  const search = 'source_name=a&source_name=b%26c&dest_port=80&action=Deny&reporter=Dst&policy=%5B%7B%22kind%22%3A%22Profile%22%7D%5D&start_time=15';
  const filters = parse(`?${search}`);
  assert.deepEqual(filters.values, { source_name: ["a", "b&c"], dest_port: ["80"], action: ["Deny"], reporter: ["Dst"] });
  assert.deepEqual(filters.policies, [{ kind: "Profile" }]);
  assert.equal(filters.minutes, 15);
  assert.deepEqual(parse(format(filters, "")), filters);
  assert.equal(new URLSearchParams(format(none(), "keep=1&action=Deny")).toString(), "keep=1");
});

test("what strangers write into a link does no harm", () => {
  for (const policy of ["{", "null", "7", '"x"', '[null, 3, {"name": 4}, {"constructor": "x"}]', '[{"name":""}]']) {
    assert.deepEqual(parse(`?policy=${encodeURIComponent(policy)}`).policies, []);
  }
  assert.equal(parse("?start_time=soon").minutes, 5);
  assert.equal(parse("?start_time=-3").minutes, 0);
  assert.equal(parse("?start_time=1e9").minutes, 60);
  assert.deepEqual(parse("?__proto__=x&toString=y").values, {});
});

test("requests are those of Calico's backend", () => {
  const filters = parse('?source_namespace=shop&dest_port=80&dest_port=x&protocol=tcp&action=Allow&staged_action=Deny&reporter=Src&policy=[{"tier":"t","name":"n"}]');
  assert.deepEqual(JSON.parse(request(filters)), {
    source_namespaces: [{ value: "shop", type: "Exact" }],
    protocols: [{ value: "tcp", type: "Exact" }],
    dest_ports: [{ value: 80, type: "Exact" }],
    actions: ["Allow"],
    pending_actions: ["Deny"],
    reporter: "Src",
    policies: [{ tier: { value: "t", type: "Exact" }, name: { value: "n", type: "Exact" } }],
  });
  assert.equal(request(none()), "");
  assert.equal(parameters(none(), { open: ["a", "b"] }).toString(), "open=a&open=b&startTimeGte=-300");
});

test("values come and go", () => {
  const one = toggled(none(), "action", "Deny");
  assert.deepEqual(one.values, { action: ["Deny"] });
  assert.deepEqual(toggled(one, "action", "Deny").values, {});
  assert.deepEqual(toggled(toggled(none(), "reporter", "Src"), "reporter", "Dst").values, { reporter: ["Dst"] });
  const policy = togglePolicy(none(), { tier: "t", name: "n" });
  assert.equal(policyText(policy.policies[0] ?? {}), "tier t n");
  assert.deepEqual(togglePolicy(policy, { name: "n", tier: "t" }).policies, []);
});
