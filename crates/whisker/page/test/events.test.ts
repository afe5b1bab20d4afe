import assert from "node:assert/strict";
import { test } from "node:test";
import { EventParser, pause } from "../src/events.ts";

const TEXT = "retry: 1000\n\n: alive\n\nevent: flows\nid: a.1\ndata: [1]\n\nid: a.2\ndata: x\ndata:y\r\n\r\nid: a.3\n\ndata: half";

test("events come out the same, however the stream is cut", () => {
  const expected = [{ type: "flows", data: "[1]" }, { type: "message", data: "x\ny" }];
  for (const size of [1, 2, 3, 7, 1000]) {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < TEXT.length; at += size) events.push(...parser.push(TEXT.slice(at, at + size)));
    assert.deepEqual(events, expected, `pieces of ${size}`);
    assert.equal(parser.lastId, "a.3");
  }
});

test("a place is reached only when its event is complete", () => {
  const parser = new EventParser();
  parser.push("id: 1\ndata: a\n\nid: 2\ndata: b\n");
  assert.equal(parser.lastId, "1");
});

test("pauses grow, to an end", () => {
  assert.deepEqual([0, 1, 2, 9].map(pause), [500, 1000, 2000, 10_000]);
});
