import assert from "node:assert/strict";
import { test } from "node:test";
import { curve, layers, layout, StableLayout, thickness, type Box, type Picture } from "../src/layout.ts";

const node = (namespace: string, name: string) => ({ namespace, name, type: "WorkloadEndpoint" });
const overlap = (one: Box, two: Box) =>
  one.x < two.x + two.width && two.x < one.x + one.width && one.y < two.y + two.height && two.y < one.y + one.height;

test("who connects is left of whom it connects to, circles included", () => {
  assert.deepEqual(layers(3, [[0, 1], [1, 2]]), [0, 1, 2]);
  assert.deepEqual(layers(2, []), [0, 0]);
  const circle = layers(3, [[0, 1], [1, 2], [2, 0], [0, 0]]);
  assert.equal(circle.length, 3);
  assert.ok(circle.every((column) => column >= 0 && column < 3));
});

test("nothing overlaps, everything is on its island and in the picture", () => {
  const nodes = Array.from({ length: 120 }, (_, id) => node(`n${id % 7}`, `w${id}`));
  const edges = nodes.map((_, id) => ({ from: id, to: (id * 7 + 3) % nodes.length }));
  for (const narrow of [false, true]) check(nodes, layout(nodes, edges, narrow));
});

function check(nodes: ReturnType<typeof node>[], picture: Picture): void {
  assert.equal(picture.islands.length, 7);
  picture.nodes.forEach((box, id) => {
    const island = picture.islands.find((one) => one.namespace === nodes[id]?.namespace);
    assert.ok(island && box.x >= island.x && box.x + box.width <= island.x + island.width, `node ${id}`);
    assert.ok(box.y >= island.y && box.y + box.height <= island.y + island.height, `node ${id}`);
    assert.ok(box.x + box.width <= picture.width && box.y + box.height <= picture.height);
    picture.nodes.slice(0, id).forEach((other) => assert.ok(!overlap(box, other), `node ${id}`));
  });
  picture.islands.forEach((one, place) => picture.islands.slice(0, place).forEach((two) => assert.ok(!overlap(one, two))));
}

test("a picture stays while its nodes stay", () => {
  const keeper = new StableLayout();
  const nodes = [node("a", "x"), node("b", "y")];
  const first = keeper.of(nodes, [{ from: 0, to: 1 }]);
  assert.equal(keeper.of([...nodes], [{ from: 1, to: 0 }]), first);
  assert.notEqual(keeper.of([...nodes, node("b", "z")], []), first);
});

test("500 nodes are placed in the time of a few frames", () => {
  const nodes = Array.from({ length: 500 }, (_, id) => node(`n${id % 40}`, `w${id}`));
  const edges = Array.from({ length: 1500 }, (_, id) => ({ from: id % 500, to: (id * 31 + 7) % 500 }));
  assert.equal(layout(nodes, edges).nodes.length, 500);
});

test("lines are lines", () => {
  const box = { x: 0, y: 0, width: 10, height: 10 };
  for (const to of [box, { ...box, x: 50 }, { ...box, x: -50 }, { ...box, y: 40 }]) {
    assert.match(curve(box, to, 0.5), /^M[-\d. ]+C[-\d. ]+$/);
  }
  assert.ok(thickness(0) > 0 && thickness(1e15) <= 7);
});
