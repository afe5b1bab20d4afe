// The rows of the live table: bounded, newest last, and what comes again replaces what came before.

import type { Flow } from "./model.ts";

export const MOST_ROWS = 20_000;

export class Rows {
  #flows: Flow[] = [];
  #places = new Map<string, number>();
  /** How many rows left before the first one that is there. */
  #gone = 0;
  readonly #most: number;

  constructor(most = MOST_ROWS) {
    this.#most = most;
  }

  /** Takes flows in; true if there is a row more. */
  add(flows: readonly Flow[]): boolean {
    const before = this.#flows.length + this.#gone;
    for (const flow of flows) {
      const key = rowKey(flow);
      const place = this.#places.get(key);
      if (place !== undefined && place >= this.#gone) {
        this.#flows[place - this.#gone] = flow;
      } else {
        this.#places.set(key, this.#gone + this.#flows.length);
        this.#flows.push(flow);
      }
    }
    this.#trim();
    return this.#flows.length + this.#gone > before;
  }

  #trim(): void {
    // In larger steps, so that not every new row moves all others.
    if (this.#flows.length <= this.#most) return;
    const surplus = this.#flows.length - Math.floor(this.#most * 0.9);
    for (const flow of this.#flows.slice(0, surplus)) this.#places.delete(rowKey(flow));
    this.#flows = this.#flows.slice(surplus);
    this.#gone += surplus;
  }

  clear(): void {
    this.#flows = [];
    this.#places.clear();
    this.#gone = 0;
  }

  /** How many rows had to leave. */
  get gone(): number {
    return this.#gone;
  }

  get length(): number {
    return this.#flows.length;
  }

  /** The rows, sorted. */
  list(sort: Sort): Flow[] {
    const flows = this.#flows.slice();
    const value = SORTS[sort.by];
    if (sort.by === "time") {
      // Rows come nearly in this order; the newest at the top. Mostly there is nothing to sort.
      flows.reverse();
      const isSorted = flows.every((flow, place) => place === 0 || flow.start_time <= (flows[place - 1]?.start_time ?? ""));
      if (!isSorted) flows.sort((one, two) => (one.start_time < two.start_time ? 1 : one.start_time > two.start_time ? -1 : 0));
    } else {
      flows.sort((one, two) => {
        const [left, right] = [value(one), value(two)];
        return left < right ? -1 : left > right ? 1 : 0;
      });
      if (typeof flows[0] !== "undefined" && typeof value(flows[0]) === "number") flows.reverse();
    }
    if (sort.reversed) flows.reverse();
    return flows;
  }
}

export function rowKey(flow: Pick<Flow, "id" | "start_time">): string {
  return `${flow.id}@${flow.start_time}`;
}

export type SortBy = "time" | "verdict" | "source" | "dest" | "port" | "bytes" | "packets";
export interface Sort {
  by: SortBy;
  reversed: boolean;
}

const SORTS: Record<SortBy, (flow: Flow) => string | number> = {
  time: (flow) => flow.start_time,
  verdict: (flow) => `${flow.action} ${flow.would ?? ""}`,
  source: (flow) => `${flow.source_namespace}/${flow.source_name}`,
  dest: (flow) => `${flow.dest_namespace}/${flow.dest_name}`,
  port: (flow) => flow.dest_port,
  bytes: (flow) => flow.bytes_in + flow.bytes_out,
  packets: (flow) => flow.packets_in + flow.packets_out,
};

/** Which rows of a list of equal heights are to be seen, with some around them. */
export function visible(
  top: number,
  height: number,
  rowHeight: number,
  rows: number,
  around = 8,
): { first: number; last: number } {
  const first = Math.max(0, Math.floor(top / rowHeight) - around);
  const last = Math.min(rows, Math.ceil((top + height) / rowHeight) + around);
  return { first: Math.min(first, last), last };
}
