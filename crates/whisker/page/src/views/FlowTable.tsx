// The live table: only the rows that are to be seen are in the document.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { bytes, clock, count, port, reason, verdict } from "../format.ts";
import type { Flow } from "../model.ts";
import { Badge, Message, Peer } from "../parts.tsx";
import { rowKey, visible, type SortBy } from "../rows.ts";
import { connection, isHeld, left, paused, rows, selected, setSort, show, sort, waiting } from "../state.ts";

const COLUMNS: { by: SortBy | null; label: string; class: string }[] = [
  { by: "time", label: "time", class: "c-time" },
  { by: "verdict", label: "verdict", class: "c-verdict" },
  { by: "source", label: "source", class: "c-source" },
  { by: "dest", label: "destination", class: "c-dest" },
  { by: "port", label: "port", class: "c-port" },
  { by: null, label: "because", class: "c-reason" },
  { by: "packets", label: "packets", class: "c-packets num" },
  { by: "bytes", label: "bytes", class: "c-bytes num" },
  { by: null, label: "at", class: "c-reporter" },
];

export function rowHeight(): number {
  return matchMedia("(max-width: 720px)").matches ? 66 : 34;
}

function Row({ flow, top, height, place }: { flow: Flow; top: number; height: number; place: number }) {
  const open = selected.value;
  const isOpen = open !== null && rowKey(open) === rowKey(flow);
  return (
    <div
      class={`row ${verdict(flow)}`}
      role="row"
      aria-rowindex={place + 2}
      aria-selected={isOpen}
      style={{ top: `${top}px`, height: `${height}px` }}
      onClick={() => (selected.value = isOpen ? null : flow)}
    >
      <span role="cell" class="c-time">{clock(flow.start_time)}</span>
      <span role="cell" class="c-verdict"><Badge flow={flow} /></span>
      <span role="cell" class="c-source"><Peer namespace={flow.source_namespace} name={flow.source_name} /></span>
      <span role="cell" class="c-dest"><Peer namespace={flow.dest_namespace} name={flow.dest_name} /></span>
      <span role="cell" class="c-port">{port(flow)}</span>
      <span role="cell" class="c-reason" title={reason(flow)}>{reason(flow)}</span>
      <span role="cell" class="c-packets num">{count(flow.packets_in + flow.packets_out)}</span>
      <span role="cell" class="c-bytes num">{bytes(flow.bytes_in + flow.bytes_out)}</span>
      <span role="cell" class="c-reporter">{flow.reporter === "Src" ? "source" : "dest"}</span>
    </div>
  );
}

export function FlowTable() {
  const body = useRef<HTMLDivElement>(null);
  const [place, setPlace] = useState({ top: 0, height: 600 });
  useLayoutEffect(() => {
    const element = body.current;
    if (!element) return;
    const measure = () => setPlace({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);
  const flows = rows.value;
  const height = rowHeight();
  const { first, last } = visible(place.top, place.height, height, flows.length);
  const held = isHeld();
  return (
    <section class="table-view" aria-label="flows">
      <div class="toolbar">
        <button class="toggle" aria-pressed={paused.value} onClick={() => (paused.value = !paused.value)}>
          {paused.value ? "▶ go on" : "❚❚ pause"}
        </button>
        <span class="figure">{count(flows.length)} rows</span>
        {left.value > 0 && <span class="figure" title="the page keeps 20 000">{count(left.value)} older ones left the page</span>}
        {held && (
          <button class="pill" onClick={show} title="show them; the stream never stopped">
            held · {count(waiting.value)} new
          </button>
        )}
      </div>
      <div class="table" role="table" aria-rowcount={flows.length + 1}>
        <div class="head" role="row">
          {COLUMNS.map((column) => (
            <span
              key={column.label}
              role="columnheader"
              class={column.class}
              aria-sort={sort.value.by === column.by ? (sort.value.reversed ? "ascending" : "descending") : "none"}
            >
              {column.by ? (
                <button class="sorter" onClick={() => column.by && setSort(column.by)}>
                  {column.label}
                  {sort.value.by === column.by && <i>{sort.value.reversed ? " ▴" : " ▾"}</i>}
                </button>
              ) : (
                column.label
              )}
            </span>
          ))}
        </div>
        <div
          class="body"
          id="rows"
          ref={body}
          role="rowgroup"
          tabIndex={0}
          onScroll={(event) =>
            setPlace({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })
          }
        >
          <div class="sizer" style={{ height: `${flows.length * height}px` }}>
            {flows.slice(first, last).map((flow, offset) => (
              <Row
                key={rowKey(flow)}
                flow={flow}
                place={first + offset}
                top={(first + offset) * height}
                height={height}
              />
            ))}
          </div>
          {flows.length === 0 && (
            <Message title={connection.value.state === "live" ? "No flows yet." : "Connecting …"}>
              <p>Flows that pass the filters appear here as soon as they are reported.</p>
            </Message>
          )}
        </div>
      </div>
    </section>
  );
}
