import assert from "node:assert/strict";
import { test } from "node:test";
import type { Flow } from "../src/model.ts";
import { Rows, visible } from "../src/rows.ts";

const flow = (id: number, start: number, bytes = 0): Flow =>
  ({ id, start_time: new Date(start * 15_000).toISOString(), bytes_in: bytes, bytes_out: 0 }) as Flow;
const sort = { by: "time", reversed: false } as const;

test("what comes again replaces what came before", () => {
  const rows = new Rows(100);
  assert.equal(rows.add([flow(1, 1, 5), flow(2, 1), flow(1, 2)]), true);
  assert.equal(rows.add([flow(1, 1, 9)]), false);
  const list = rows.list(sort);
  assert.deepEqual(list.map((one) => one.id), [1, 2, 1]);
  assert.equal(list[2]?.bytes_in, 9);
  assert.deepEqual(rows.list({ by: "bytes", reversed: false }).map((one) => one.bytes_in), [9, 0, 0]);
});

test("rows are bounded, and what left is counted", () => {
  const rows = new Rows(100);
  for (let start = 0; start < 250; start += 1) rows.add([flow(7, start, start)]);
  assert.ok(rows.length <= 100, `${rows.length}`);
  assert.equal(rows.length + rows.gone, 250);
  assert.equal(rows.list(sort)[0]?.bytes_in, 249);
  // A row that left is new when it comes again; one that is there is not.
  rows.add([flow(7, 249, 1)]);
  assert.equal(rows.length + rows.gone, 250);
  assert.equal(rows.list(sort)[0]?.bytes_in, 1);
});

test("only rows in sight are drawn", () => {
  assert.deepEqual(visible(0, 340, 34, 20_000, 0), { first: 0, last: 10 });
  assert.deepEqual(visible(34_000, 340, 34, 20_000, 8), { first: 992, last: 1018 });
  assert.deepEqual(visible(9e9, 340, 34, 5, 8), { first: 5, last: 5 });
});
