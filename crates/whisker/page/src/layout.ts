// Where things are in the service graph: namespaces as islands in columns, workloads in columns inside them, from those who
// connect on the left to those who are connected to on the right. The same nodes are always in the same places.

import type { GraphEdge, GraphNode } from "./model.ts";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Island extends Box {
  namespace: string;
}

export interface Picture {
  islands: Island[];
  /** A box for every node, in their order. */
  nodes: Box[];
  width: number;
  height: number;
}

const NODE = { width: 148, height: 30, gapX: 44, gapY: 14 };
const ISLAND = { padding: 14, head: 26, gapX: 70, gapY: 28 };
/** The shapes of pictures, in widths per height, that fill a screen: lying and standing. */
const SHAPES = { wide: 1.9, narrow: 0.75 };
/** How much further apart rows may be for that. */
const MOST_SPREAD = 7;
const MARGIN = 24;
/** A column of workloads is broken after so many. */
const MOST_ROWS = 12;

type Pairs = readonly (readonly [number, number])[];

/** Columns for things that are connected: sources left, circles cut where they weigh least. */
export function layers(count: number, pairs: Pairs): number[] {
  const out = new Array<number>(count).fill(0);
  const weights = new Map<string, number>();
  for (const [from, to] of pairs) {
    if (from === to) continue;
    weights.set(`${from}>${to}`, (weights.get(`${from}>${to}`) ?? 0) + 1);
  }
  const edges = [...weights].map(([key, weight]) => {
    const [from = 0, to = 0] = key.split(">").map(Number);
    return { from, to, weight };
  });
  for (const { from, to, weight } of edges) {
    out[from] = (out[from] ?? 0) + weight;
    out[to] = (out[to] ?? 0) - weight;
  }
  const order = Array.from({ length: count }, (_, place) => place);
  order.sort((one, two) => (out[two] ?? 0) - (out[one] ?? 0) || one - two);
  const rank = new Array<number>(count).fill(0);
  order.forEach((id, place) => (rank[id] = place));
  const column = new Array<number>(count).fill(0);
  for (const id of order) {
    for (const edge of edges) {
      if (edge.from === id && (rank[edge.to] ?? 0) > (rank[id] ?? 0)) {
        column[edge.to] = Math.max(column[edge.to] ?? 0, (column[id] ?? 0) + 1);
      }
    }
  }
  return column;
}

function grouped(columns: number[]): number[][] {
  const found: number[][] = [];
  columns.forEach((column, id) => (found[column] ??= []).push(id));
  return found.filter((column) => column !== undefined);
}

/** Orders columns so that neighbours are near each other. */
function untangled(columns: number[][], pairs: Pairs): number[][] {
  const place = new Map<number, number>();
  const remember = () => columns.forEach((column) => column.forEach((id, row) => place.set(id, row - column.length / 2)));
  remember();
  for (let round = 0; round < 3; round += 1) {
    for (const column of columns) {
      const middle = new Map<number, number>();
      for (const id of column) {
        const near = pairs.flatMap(([from, to]) => (from === id ? [to] : to === id ? [from] : [])).filter((other) => other !== id);
        const rows = near.map((other) => place.get(other) ?? 0);
        middle.set(id, rows.length ? rows.reduce((sum, row) => sum + row, 0) / rows.length : (place.get(id) ?? 0));
      }
      column.sort((one, two) => (middle.get(one) ?? 0) - (middle.get(two) ?? 0) || one - two);
    }
    remember();
  }
  return columns;
}

/** Breaks columns that are too long into several. */
function broken(columns: number[][]): number[][] {
  return columns.flatMap((column) => {
    const parts: number[][] = [];
    for (let first = 0; first < column.length; first += MOST_ROWS) parts.push(column.slice(first, first + MOST_ROWS));
    return parts;
  });
}

type Ends = readonly Pick<GraphEdge, "from" | "to">[];

/** Places everything. In a narrow picture the columns of islands are below each other. */
export function layout(nodes: readonly GraphNode[], edges: Ends, narrow = false): Picture {
  const picture = placed(nodes, edges, narrow, 1);
  const wanted = picture.width / (narrow ? SHAPES.narrow : SHAPES.wide);
  if (picture.height >= wanted) return picture;
  // The height grows evenly with the room between rows.
  const step = placed(nodes, edges, narrow, 2).height - picture.height;
  return step > 0 ? placed(nodes, edges, narrow, Math.min(MOST_SPREAD, 1 + (wanted - picture.height) / step)) : picture;
}

function placed(nodes: readonly GraphNode[], edges: Ends, narrow: boolean, spread: number): Picture {
  const [nodeGap, islandGap] = [NODE.gapY * spread, ISLAND.gapY * spread];
  const names = [...new Set(nodes.map((node) => node.namespace))].sort();
  const islandOf = nodes.map((node) => names.indexOf(node.namespace));
  const boxes: Box[] = nodes.map(() => ({ x: 0, y: 0, ...pick(NODE) }));
  // Inside the islands, as if each began at zero.
  const islands: Island[] = names.map((namespace, island) => {
    const members = nodes.flatMap((_, id) => (islandOf[id] === island ? [id] : []));
    const local = new Map(members.map((id, place) => [id, place]));
    const pairs = edges.flatMap(({ from, to }) => {
      const [one, two] = [local.get(from), local.get(to)];
      return one === undefined || two === undefined ? [] : [[one, two] as const];
    });
    const columns = broken(untangled(grouped(layers(members.length, pairs)), pairs));
    const rows = Math.max(1, ...columns.map((column) => column.length));
    columns.forEach((column, x) => {
      const offset = ((rows - column.length) * (NODE.height + nodeGap)) / 2;
      column.forEach((member, row) => {
        const box = boxes[members[member] ?? 0];
        if (!box) return;
        box.x = ISLAND.padding + x * (NODE.width + NODE.gapX);
        box.y = ISLAND.head + ISLAND.padding + offset + row * (NODE.height + nodeGap);
      });
    });
    const width = 2 * ISLAND.padding + columns.length * NODE.width + (columns.length - 1) * NODE.gapX;
    const height = ISLAND.head + 2 * ISLAND.padding + rows * NODE.height + (rows - 1) * nodeGap;
    return { namespace, x: 0, y: 0, width: Math.max(width, NODE.width), height };
  });
  // The islands themselves.
  const pairs = edges.flatMap(({ from, to }) => {
    const [one, two] = [islandOf[from], islandOf[to]];
    return one === undefined || two === undefined || one === two ? [] : [[one, two] as const];
  });
  const columns = untangled(grouped(layers(islands.length, pairs)), pairs);
  const size = columns.map((column) => ({
    width: Math.max(0, ...column.map((id) => islands[id]?.width ?? 0)),
    height: column.reduce((sum, id) => sum + (islands[id]?.height ?? 0) + islandGap, -islandGap),
  }));
  const widest = Math.max(0, ...size.map((one) => one.width));
  const highest = Math.max(0, ...size.map((one) => one.height));
  let [x, y] = [MARGIN, MARGIN];
  columns.forEach((column, place) => {
    const { width, height } = size[place] ?? { width: 0, height: 0 };
    const left = narrow ? MARGIN + (widest - width) / 2 : x;
    let top = narrow ? y : MARGIN + (highest - height) / 2;
    for (const id of column) {
      const island = islands[id];
      if (!island) continue;
      island.x = left + (width - island.width) / 2;
      island.y = top;
      top += island.height + islandGap;
    }
    x += width + ISLAND.gapX;
    y += height + islandGap;
  });
  boxes.forEach((box, id) => {
    const island = islands[islandOf[id] ?? 0];
    box.x += island?.x ?? 0;
    box.y += island?.y ?? 0;
  });
  return {
    islands,
    nodes: boxes,
    width: narrow ? widest + 2 * MARGIN : Math.max(0, x - ISLAND.gapX) + MARGIN,
    height: narrow ? Math.max(0, y - islandGap) + MARGIN : highest + 2 * MARGIN,
  };
}

function pick(node: typeof NODE): Pick<Box, "width" | "height"> {
  return { width: node.width, height: node.height };
}

/** Keeps the picture for as long as the nodes are the same: what moves cannot be read. */
export class StableLayout {
  #key = "";
  #picture: Picture = { islands: [], nodes: [], width: 0, height: 0 };

  of(nodes: readonly GraphNode[], edges: Ends, narrow = false): Picture {
    const key = JSON.stringify([narrow, nodes.map((node) => [node.namespace, node.name])]);
    if (key !== this.#key) {
      this.#key = key;
      this.#picture = layout(nodes, edges, narrow);
    }
    return this.#picture;
  }
}

/** The line between two boxes; `lane` keeps several lines of one pair apart. */
export function curve(from: Box, to: Box, lane: number): string {
  const shift = lane * 7;
  const middle = (box: Box) => box.y + box.height / 2 + shift;
  const [y1, y2] = [middle(from), middle(to)];
  if (from === to) {
    const x = from.x + from.width;
    return `M${x} ${y1 - 6} C${x + 34} ${y1 - 22} ${x + 34} ${y1 + 22} ${x} ${y1 + 6}`;
  }
  if (to.x >= from.x + from.width) {
    const [x1, x2] = [from.x + from.width, to.x];
    const bend = Math.max(24, (x2 - x1) / 2);
    return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  }
  if (from.x >= to.x + to.width) {
    const [x1, x2] = [from.x, to.x + to.width];
    const bend = Math.max(24, (x1 - x2) / 2);
    return `M${x1} ${y1} C${x1 - bend} ${y1} ${x2 + bend} ${y2} ${x2} ${y2}`;
  }
  // In one column: around the right side.
  const x1 = from.x + from.width;
  const x2 = to.x + to.width;
  const bend = Math.max(x1, x2) + 30 + Math.abs(y2 - y1) / 10;
  return `M${x1} ${y1} C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}`;
}

/** How thick a line is for so many bytes a second. */
export function thickness(bytesPerSecond: number): number {
  return Math.min(7, 1.2 + Math.log10(1 + bytesPerSecond / 50));
}
