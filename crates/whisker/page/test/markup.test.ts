// Names of strangers are texts, wherever they are shown.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Flow, Hit } from "../src/model.ts";
import { Badge, HitRow, Peer } from "../src/parts.tsx";

const HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>';

interface Node {
  type: unknown;
  props: Record<string, unknown>;
}

/** Every text and every attribute of what a part draws. */
function drawn(part: unknown, texts: string[], attributes: [string, unknown][]): void {
  if (Array.isArray(part)) part.forEach((one) => drawn(one, texts, attributes));
  else if (typeof part === "string" || typeof part === "number") texts.push(String(part));
  else if (typeof part === "object" && part !== null) {
    const node = part as Node;
    if (typeof node.type === "function") {
      drawn((node.type as (props: unknown) => unknown)(node.props), texts, attributes);
      return;
    }
    for (const [name, value] of Object.entries(node.props)) {
      if (name === "children") drawn(value, texts, attributes);
      else attributes.push([name, value]);
    }
  }
}

const hit: Hit = {
  kind: HOSTILE, name: HOSTILE, namespace: HOSTILE, tier: HOSTILE, action: "Deny", policy_index: 0, rule_index: 0, trigger: null,
};

test("hostile names are children or titles, never anything that a browser runs", () => {
  const texts: string[] = [];
  const attributes: [string, unknown][] = [];
  for (const part of [
    Peer({ namespace: HOSTILE, name: HOSTILE }),
    HitRow({ hit, onPolicy: () => undefined }),
    HitRow({ hit: { ...hit, kind: "EndOfTier", trigger: hit }, onPolicy: () => undefined }),
    HitRow({ hit: { ...hit, kind: "Profile" }, onPolicy: () => undefined }),
    Badge({ flow: { action: HOSTILE, would: HOSTILE } as unknown as Flow }),
  ]) {
    drawn(part, texts, attributes);
  }
  assert.ok(texts.some((text) => text.includes("<script>")), "the name is shown as it is");
  for (const [name, value] of attributes) {
    if (typeof value === "string" && value.includes("<img")) assert.equal(name, "title");
    if (name.startsWith("on")) assert.equal(typeof value, "function", `${name} is code of ours`);
    assert.ok(!["href", "src", "srcdoc", "dangerouslySetInnerHTML"].includes(name), name);
  }
});

test("no source makes markup of texts", () => {
  const folder = process.env["PAGE_SOURCES"];
  assert.ok(folder, "PAGE_SOURCES names the folder");
  const files = (path: string): string[] =>
    readdirSync(path, { withFileTypes: true }).flatMap((one) => (one.isDirectory() ? files(join(path, one.name)) : [join(path, one.name)]));
  const sources = files(folder).filter((name) => /\.tsx?$/.test(name));
  assert.ok(sources.length > 10);
  for (const name of sources) {
    const forbidden = /innerHTML|outerHTML|insertAdjacent|dangerously|document\.write|\beval\b|new Function|https?:\/\//.exec(readFileSync(name, "utf8"));
    assert.equal(forbidden?.[0], undefined, name);
  }
});
