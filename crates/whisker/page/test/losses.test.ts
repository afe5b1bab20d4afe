import assert from "node:assert/strict";
import { test } from "node:test";
import { lines, total } from "../src/losses.ts";
import type { Status } from "../src/model.ts";

const status = (more: Partial<Status>): Status => ({
  source: "", problem: null, age: 1, received: 1, keys: 1, losses: [], nodes: 2, silent: [], ...more,
});

test("losses are named with their node, and silent nodes with their silence", () => {
  const known = status({
    losses: [{ node: "n1", what: "packets", count: 3 }, { what: "flows", count: 4 }],
    silent: [{ node: "n2", age: 90 }],
  });
  assert.equal(total(known), 7);
  assert.deepEqual(lines(known).slice(0, 2), ["node n1: 3 packets", "here: 4 flows"]);
  assert.match(lines(known)[2] ?? "", /^node n2: not heard from for .*, its flows may be missing$/);
});

test("where nothing was lost, it says how much of that is known", () => {
  assert.equal(total(null), 0);
  assert.match(lines(null)[0] ?? "", /nothing is known/);
  assert.match(lines(status({}))[0] ?? "", /as far as 2 nodes and this server know/);
  assert.match(lines(status({ nodes: 1 }))[0] ?? "", /one node/);
  assert.match(lines(status({ nodes: null }))[0] ?? "", /keeps no account/);
});
