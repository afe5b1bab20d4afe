// The service graph.

import type { VNode } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { bytes, count, namespace } from "../format.ts";
import { none, toggled, type Filters } from "../filters.ts";
import { curve, StableLayout, thickness, type Box, type Picture } from "../layout.ts";
import type { Graph, GraphEdge, GraphNode, Sum } from "../model.ts";
import { useMove } from "../move.ts";
import { Message } from "../parts.tsx";
import { usePoll } from "../poll.ts";
import { filters, setFilters, setView } from "../state.ts";

type Fate = "allow" | "deny" | "would_deny" | "would_allow";
const FATES: { fate: Fate; label: string }[] = [
  { fate: "allow", label: "allowed" },
  { fate: "deny", label: "denied" },
  { fate: "would_deny", label: "would be denied" },
  { fate: "would_allow", label: "would be allowed" },
];

/** The lines of an edge: what would be denied is allowed today, and is not drawn twice. */
export function lines(edge: GraphEdge): { fate: Fate; sum: Sum }[] {
  const found: { fate: Fate; sum: Sum }[] = [];
  const would = edge.would_deny?.packets ?? 0;
  if (edge.allow.packets > would) found.push({ fate: "allow", sum: edge.allow });
  if (edge.would_deny) found.push({ fate: "would_deny", sum: edge.would_deny });
  if (edge.deny) found.push({ fate: edge.would_allow ? "would_allow" : "deny", sum: edge.deny });
  return found;
}

function short(name: string, most: number): string {
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

interface Picked {
  from: number;
  to: number;
}

const toggle = (list: string[], one: string): string[] => (list.includes(one) ? list.filter((other) => other !== one) : [...list, one]);

/** The graph without the namespaces that are hidden. */
export function without(graph: Pick<Graph, "nodes" | "edges">, hidden: readonly string[]): Pick<Graph, "nodes" | "edges"> {
  const places: number[] = [];
  const nodes: GraphNode[] = [];
  for (const node of graph.nodes) {
    places.push(hidden.includes(node.namespace) ? -1 : nodes.length);
    if (!hidden.includes(node.namespace)) nodes.push(node);
  }
  const edges = graph.edges.flatMap((edge) => {
    const [from = -1, to = -1] = [places[edge.from], places[edge.to]];
    return from < 0 || to < 0 ? [] : [{ ...edge, from, to }];
  });
  return { nodes, edges };
}

/** Elements by key, each made anew only when what it shows has changed: Preact passes over the same element. */
class Kept {
  #elements = new Map<string, { shows: string; element: VNode }>();
  #used = new Set<string>();

  begin(): void {
    this.#used.clear();
  }

  /** `shows` says all that the element depends on. */
  of(key: string, shows: string, make: () => VNode): VNode {
    this.#used.add(key);
    const known = this.#elements.get(key);
    if (known?.shows === shows) return known.element;
    const element = make();
    this.#elements.set(key, { shows, element });
    return element;
  }

  /** Forgets what was not asked for since the beginning. */
  end(): void {
    for (const key of this.#elements.keys()) if (!this.#used.has(key)) this.#elements.delete(key);
  }
}

interface DrawingProps extends Pick<Graph, "nodes" | "edges"> {
  picture: Picture;
  picked: Picked | null;
  seconds: number;
  onPick: (edge: Picked | null) => void;
  onOpen: (namespace: string) => void;
}

function Drawing({ nodes, edges, picture, picked, seconds, onPick, onOpen }: DrawingProps) {
  const kept = useMemo(() => new Kept(), []);
  kept.begin();
  const drawn = (
    <>
      {picture.islands.map((island) => (
        <g key={island.namespace} class={`island ${island.namespace === "Global" ? "outside" : ""}`}>
          <rect x={island.x} y={island.y} width={island.width} height={island.height} rx="12" />
          <text x={island.x + 14} y={island.y + 21}>{island.namespace === "Global" ? "outside" : short(island.namespace, Math.floor(island.width / 8))}</text>
        </g>
      ))}
      {edges.map((edge) => {
        const [from, to] = [picture.nodes[edge.from], picture.nodes[edge.to]];
        if (!from || !to) return null;
        const key = `${edge.from}>${edge.to}`;
        const isPicked = picked?.from === edge.from && picked.to === edge.to;
        const found = lines(edge);
        const all = found.map(({ fate, sum }, lane) => ({
          fate,
          path: curve(from, to, lane - (found.length - 1) / 2),
          width: Math.max(fate === "allow" ? 0 : 2, thickness(sum.bytes / seconds)).toFixed(1),
        }));
        const title = `${found.map((one) => `${one.fate.replace("_", " ")} ${bytes(one.sum.bytes)}`).join(", ")} · ${edge.ports.join(" ")}`;
        return kept.of(`edge ${key}`, `${isPicked} ${title} ${all.map((one) => `${one.fate} ${one.path} ${one.width}`).join()}`, () => (
          <g key={key} class={`edge ${isPicked ? "picked" : ""}`} onClick={() => onPick(isPicked ? null : { from: edge.from, to: edge.to })}>
            <path class="touch" d={curve(from, to, 0)} />
            {all.map(({ fate, path, width }) => (
              <path key={fate} class={`line ${fate}`} d={path} stroke-width={width} marker-end={`url(#arrow-${fate})`} />
            ))}
            <title>{title}</title>
          </g>
        ));
      })}
      {nodes.map((node, id) => {
        const box: Box | undefined = picture.nodes[id];
        if (!box) return null;
        const key = `${node.namespace}/${node.name}`;
        return kept.of(`node ${key}`, `${node.type} ${box.x} ${box.y}`, () => (
          <g key={key} class={`node ${node.type || "namespace"}`} onClick={() => !node.name && onOpen(node.namespace)}>
            <rect x={box.x} y={box.y} width={box.width} height={box.height} rx="7" />
            <text x={box.x + 10} y={box.y + 20}>{short(node.name || "all workloads", 17)}</text>
            <title>{node.name ? key : node.namespace}</title>
          </g>
        ));
      })}
    </>
  );
  kept.end();
  return drawn;
}

export function GraphView() {
  const [open, setOpen] = useState<string[]>([]);
  const [level, setLevel] = useState("auto");
  const [hidden, setHidden] = useState<string[]>([]);
  const [picked, setPicked] = useState<Picked | null>(null);
  const [scale, setScale] = useState(1);
  const { moving, stage, layer, reset } = useMove();
  const keeper = useMemo(() => new StableLayout(), []);
  const { value: graph, problem } = usePoll<Graph>("api/v1/graph", { level: open.length ? "namespace" : level, open });
  // What changes while the picture moves is drawn when it stands.
  const held = useRef(graph);
  if (!moving) held.current = graph;
  const seconds = Math.max(1, filters.value.minutes * 60);
  const { nodes, edges, picture } = useMemo(() => {
    const found = held.current ? without(held.current, hidden) : { nodes: [], edges: [] };
    return { ...found, picture: keeper.of(found.nodes, found.edges, matchMedia("(max-width: 720px)").matches) };
  }, [held.current, hidden]);
  // Hundreds of boxes and lines are looked at again only if one of them changed.
  const drawn = useMemo(
    () => <Drawing nodes={nodes} edges={edges} picture={picture} picked={picked} seconds={seconds} onPick={setPicked} onOpen={(one) => setOpen((last) => toggle(last, one))} />,
    [picture, edges, picked, seconds],
  );
  if (!graph) return <Message title={problem || "Drawing …"} />;
  if (!graph.nodes.length) return <Message title="No flows in this time."><p>Look further back, or remove filters.</p></Message>;
  const namespaces = [...new Set(graph.nodes.map((node) => node.namespace))].sort();
  const chosen = picked && edges.find((edge) => edge.from === picked.from && edge.to === picked.to);
  const showFlows = (edge: GraphEdge) => {
    const [from, to] = [nodes[edge.from], nodes[edge.to]];
    if (!from || !to) return;
    let next: Filters = { ...none(), minutes: filters.value.minutes };
    next = toggled(toggled(next, "source_namespace", from.namespace), "dest_namespace", to.namespace);
    if (from.name) next = toggled(next, "source_name", from.name);
    if (to.name) next = toggled(next, "dest_name", to.name);
    setFilters(next);
    setView("flows");
  };
  return (
    <section class="graph-view" aria-label="service graph">
      <div class="toolbar">
        <button class="toggle" aria-pressed={level === "namespace"} onClick={() => { setLevel(level === "namespace" ? "auto" : "namespace"); setOpen([]); setPicked(null); }}>
          namespaces only
        </button>
        {namespaces.map((one) => (
          <button key={one} class="toggle" aria-pressed={!hidden.includes(one)} title="show or hide; with Shift: only this one"
            onClick={(event) => setHidden(event.shiftKey ? (hidden.length === namespaces.length - 1 ? [] : namespaces.filter((other) => other !== one)) : toggle(hidden, one))}>
            {namespace(one)}
          </button>
        ))}
        <span class="spacer" />
        <button class="icon" aria-label="smaller" onClick={() => setScale(scale / 1.25)}>−</button>
        <button class="icon" aria-label="larger" onClick={() => setScale(scale * 1.25)}>+</button>
        <button class="icon" aria-label="all of it" onClick={() => { setScale(1); reset(); }}>⤢</button>
      </div>
      {(graph.collapsed && level === "auto") || graph.left_out > 0 || problem ? (
        <p class="notice">
          {problem || (graph.left_out > 0 ? `${graph.left_out} nodes with the least traffic are not drawn.` : "Too many workloads to draw: namespaces stand for theirs. Filter to see workloads.")}
        </p>
      ) : null}
      <div class="canvas">
        <div class="movable" {...stage}>
          <div class="mover" {...layer}>
            <svg
              role="img"
              aria-label="who talks to whom"
              viewBox={`0 0 ${Math.max(picture.width, 10)} ${Math.max(picture.height, 10)}`}
              preserveAspectRatio="xMidYMid meet"
              style={{ transform: `scale(${scale})` }}
              onWheel={(event) => { if (event.ctrlKey) { event.preventDefault(); setScale(Math.min(6, Math.max(0.3, scale * (event.deltaY < 0 ? 1.1 : 0.9)))); } }}
            >
              <defs>
                {FATES.map(({ fate }) => (
                  <marker key={fate} id={`arrow-${fate}`} class={`arrow ${fate}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">
                    <path d="M0 0 L8 4 L0 8 z" />
                  </marker>
                ))}
              </defs>
              {drawn}
            </svg>
          </div>
          {moving && <div class="shield" />}
        </div>
        <div class="legend" aria-hidden="true">
          {FATES.slice(0, 3).map(({ fate, label }) => (
            <span key={fate} class={fate}><i /> {label}</span>
          ))}
        </div>
        {chosen && (
          <div class="popup">
            <button class="icon" aria-label="close" onClick={() => setPicked(null)}>×</button>
            <strong>{nodes[chosen.from]?.name || nodes[chosen.from]?.namespace} → {nodes[chosen.to]?.name || nodes[chosen.to]?.namespace}</strong>
            <dl>
              {lines(chosen).map(({ fate, sum }) => (
                <>
                  <dt class={fate}>{FATES.find((one) => one.fate === fate)?.label}</dt>
                  <dd>{bytes(sum.bytes)}, {count(sum.packets)} packets, {count(sum.connections)} connections</dd>
                </>
              ))}
              <dt>ports</dt>
              <dd>{chosen.ports.join(", ")}</dd>
            </dl>
            <button class="link" onClick={() => showFlows(chosen)}>show these flows</button>
          </div>
        )}
      </div>
    </section>
  );
}
