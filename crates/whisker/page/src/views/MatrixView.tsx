// Everybody to everybody: what policies say now, where traffic was seen, and on a click why.

import { useState } from "preact/hooks";
import { count } from "../format.ts";
import { splitReceiver } from "../matrix.ts";
import type { Matrix, MatrixCell } from "../model.ts";
import { Message } from "../parts.tsx";
import { usePoll } from "../poll.ts";
import { explained } from "../state.ts";
import { Explain } from "./Explain.tsx";

const SIGNS: Record<MatrixCell["v"], string> = { allow: "✓", deny: "✕", partly: "◐" };
const WORDS: Record<MatrixCell["v"], string> = { allow: "allowed", deny: "denied", partly: "allowed to some" };

function seen(cell: MatrixCell): string {
  const parts = [cell.a ? `${count(cell.a)} packets passed` : "", cell.d ? `${count(cell.d)} packets were dropped` : ""];
  return parts.filter(Boolean).join(", ") || "no traffic seen";
}

export function MatrixView() {
  const [namespace, setNamespace] = useState("");
  const [protocol, setProtocol] = useState("tcp");
  const [place, setPlace] = useState({ row: 0, column: 0 });
  const { value: matrix, problem } = usePoll<Matrix>("api/v1/matrix", { namespace, protocol });
  if (!matrix) return <Message title={problem || "Asking every policy about every pair …"} />;
  const open = explained.value;
  const select = (row: number, column: number) => {
    const [from, to] = [matrix.senders[row], matrix.receivers[column]];
    if (from === undefined || to === undefined) return;
    const { name, port } = splitReceiver(to);
    setPlace({ row, column });
    explained.value = { from, to: name, port, protocol };
  };
  const onKey = (event: KeyboardEvent) => {
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!by) return;
    event.preventDefault();
    const row = Math.min(matrix.senders.length - 1, Math.max(0, place.row + (by[0] ?? 0)));
    const column = Math.min(matrix.receivers.length - 1, Math.max(0, place.column + (by[1] ?? 0)));
    setPlace({ row, column });
    document.getElementById(`cell-${row}-${column}`)?.focus();
    if (open) select(row, column);
  };
  return (
    <>
      <section class="matrix-view" aria-label="connectivity matrix">
        <div class="toolbar">
          <label class="since">
            <span>namespace</span>
            <select value={namespace} onChange={(event) => setNamespace(event.currentTarget.value)}>
              <option value="">all</option>
              {Object.entries(matrix.namespaces).map(([name, workloads]) => (
                <option key={name} value={name}>{name} ({workloads})</option>
              ))}
            </select>
          </label>
          {["tcp", "udp"].map((one) => (
            <button key={one} class="toggle" aria-pressed={protocol === one} onClick={() => setProtocol(one)}>{one}</button>
          ))}
          <span class="spacer" />
          <span class="key"><i class="allow">✓</i> allowed</span>
          <span class="key"><i class="deny">✕</i> denied</span>
          <span class="key"><i class="seen" /> traffic seen</span>
        </div>
        {problem && <p class="notice">{problem}</p>}
        {matrix.too_many ? (
          <Message title="Too many workloads for one picture."><p>Choose a namespace.</p></Message>
        ) : matrix.senders.length === 0 ? (
          <Message title="No workloads." />
        ) : (
          <div class="grid-scroll">
            <table class="matrix" role="grid" onKeyDown={onKey}>
              <thead>
                <tr>
                  <th scope="col"><small>from ↓ &nbsp; to →</small></th>
                  {matrix.receivers.map((name) => <th key={name} scope="col"><span>{name}</span></th>)}
                </tr>
              </thead>
              <tbody>
                {matrix.senders.map((from, row) => (
                  <tr key={from}>
                    <th scope="row">{from}</th>
                    {matrix.receivers.map((to, column) => {
                      const cell = matrix.cells[row]?.[column];
                      if (!cell) return <td key={to} />;
                      if (splitReceiver(to).name === from) return <td key={to} class="self" aria-label="itself" />;
                      const isOpen = open?.from === from && `${open.to}:${open.port}` === to;
                      const why = cell.r === undefined ? "" : `: ${matrix.reasons[cell.r] ?? ""}`;
                      return (
                        <td key={to} class={`${cell.v} ${isOpen ? "open" : ""}`}>
                          <button
                            id={`cell-${row}-${column}`}
                            tabIndex={row === place.row && column === place.column ? 0 : -1}
                            aria-label={`${from} to ${to}: ${WORDS[cell.v]}, ${seen(cell)}`}
                            title={`${from} → ${to}\n${WORDS[cell.v]}${why}\n${seen(cell)}`}
                            onClick={() => select(row, column)}
                          >
                            {SIGNS[cell.v]}
                            {(cell.a || cell.d) && <i class={cell.d ? "seen dropped" : "seen"} />}
                          </button>
                        </td>
                      );
                    })}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </section>
      {open && <Explain key={JSON.stringify(open)} pair={open} onClose={() => (explained.value = null)} />}
    </>
  );
}
