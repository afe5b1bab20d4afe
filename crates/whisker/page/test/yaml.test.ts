// Policies as people write them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { asWritten, toYaml } from "../src/yaml.ts";

test("values and their texts", () => {
  const cases: [unknown, string][] = [
    ["Allow", "Allow"],
    ["app == 'web'", "app == 'web'"],
    ["app == 'a' # b", "\"app == 'a' # b\""],
    [["app == 'web'"], "[\"app == 'web'\"]"],
    ["yes", '"yes"'],
    ["8080", '"8080"'],
    ["a\nb: c", '"a\\nb: c"'],
    [[80, "http", "5000:6000"], '[80, http, "5000:6000"]'],
    [{}, "{}"],
    [{ action: "Deny", source: { selector: "all()" } }, 'action: Deny\nsource:\n  selector: "all()"'],
    [{ ingress: [{ action: "Allow", destination: { ports: [80] } }, { action: "Pass" }] }, "ingress:\n- action: Allow\n  destination:\n    ports: [80]\n- action: Pass"],
    [{ "a: b": null }, '"a: b": null'],
  ];
  for (const [value, expected] of cases) assert.equal(toYaml(value), expected);
});

test("a stored policy loses what the cluster added", () => {
  const stored = {
    apiVersion: "projectcalico.org/v3",
    kind: "NetworkPolicy",
    metadata: { name: "db", namespace: "shop", uid: "1", resourceVersion: "2" },
    spec: { selector: "all()", order: 1 },
  };
  assert.equal(asWritten(stored), 'apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata:\n  name: db\n  namespace: shop\nspec:\n  selector: "all()"\n  order: 1\n');
});
