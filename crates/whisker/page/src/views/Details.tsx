// Everything about one flow, beside the table. The stream goes on behind it.

import { useState } from "preact/hooks";
import { bytes, clock, count, decider, port, reason, VERDICTS, verdict } from "../format.ts";
import { togglePolicy, toggled } from "../filters.ts";
import type { Flow, Hit } from "../model.ts";
import { Badge, HitRow, Peer } from "../parts.tsx";
import { workload } from "../matrix.ts";
import { explained, filters, selected, setFilters } from "../state.ts";
import { RuleText } from "./RuleText.tsx";

function same(one: Hit[] | null, two: Hit[] | null): boolean {
  return JSON.stringify(one) === JSON.stringify(two);
}

function Labels({ text }: { text: string }) {
  const labels = text ? text.split(" | ") : [];
  return <dd>{labels.length ? labels.map((label) => <code key={label}>{label}</code>) : <em>none in common</em>}</dd>;
}

export function Details({ flow }: { flow: Flow }) {
  const [raw, setRaw] = useState(false);
  const close = () => (selected.value = null);
  const onPolicy = (hit: Hit) => {
    close();
    setFilters(
      togglePolicy(filters.value, {
        tier: hit.tier,
        name: hit.name,
        ...(hit.namespace ? { namespace: hit.namespace } : {}),
      }),
    );
  };
  const only = (key: "source" | "dest") => {
    close();
    const next = toggled(filters.value, `${key}_name`, key === "source" ? flow.source_name : flow.dest_name);
    setFilters(toggled(next, `${key}_namespace`, key === "source" ? flow.source_namespace : flow.dest_namespace));
  };
  const direction = flow.reporter === "Src" ? "egress" : "ingress";
  const [from, to] = [workload(flow.source_namespace, flow.source_name, flow.source_type), workload(flow.dest_namespace, flow.dest_name, flow.dest_type)];
  const { enforced, pending } = flow.policies;
  const hasOther = pending !== null && !same(enforced, pending);
  const would = decider(pending);
  return (
    <aside class="details" aria-label="details of a flow">
      <header>
        <Badge flow={flow} />
        <strong>{VERDICTS[verdict(flow)]}</strong>
        <button class="icon" aria-label="close (Escape)" onClick={close}>×</button>
      </header>
      <div class="scroll">
        <p class="ends">
          <button class="link" title="only flows from here" onClick={() => only("source")}>
            <Peer namespace={flow.source_namespace} name={flow.source_name} />
          </button>
          <span aria-hidden="true"> → </span>
          <button class="link" title="only flows to here" onClick={() => only("dest")}>
            <Peer namespace={flow.dest_namespace} name={flow.dest_name} />
          </button>{" "}
          <code>{port(flow)}</code>
        </p>
        <p class="why">
          {flow.action === "Deny" ? "Denied" : "Allowed"} at the {flow.reporter === "Src" ? "source" : "destination"}:{" "}
          {reason(flow)}.
          {flow.would && would && (
            <span class="would"> With staged policies it would be {flow.would === "Deny" ? "denied" : "allowed"}.</span>
          )}
        </p>
        {from && to && (
          <button class="link" onClick={() => (explained.value = { from, to, port: String(flow.dest_port), protocol: flow.protocol })}>
            explain it by the policies of now
          </button>
        )}
        <h3>Enforced</h3>
        {enforced?.length ? (
          <ol class="hits">
            {enforced.map((hit, place) => (
              <HitRow key={place} hit={hit} onPolicy={onPolicy}><RuleText hit={hit} direction={direction} /></HitRow>
            ))}
          </ol>
        ) : (
          <p class="quiet">No policy was reported.</p>
        )}
        <h3>With staged policies</h3>
        {hasOther ? (
          <ol class="hits pending">
            {pending.map((hit, place) => (
              <HitRow key={place} hit={hit} onPolicy={onPolicy}><RuleText hit={hit} direction={direction} /></HitRow>
            ))}
          </ol>
        ) : (
          <p class="quiet">{pending?.length ? "The same." : "Not evaluated."}</p>
        )}
        <h3>Traffic</h3>
        <dl>
          <dt>time</dt>
          <dd>{clock(flow.start_time)} – {clock(flow.end_time)}</dd>
          <dt>in</dt>
          <dd>{bytes(flow.bytes_in)} in {count(flow.packets_in)} packets</dd>
          <dt>out</dt>
          <dd>{bytes(flow.bytes_out)} in {count(flow.packets_out)} packets</dd>
          <dt>connections</dt>
          <dd>
            {count(flow.connections_started)} began, {count(flow.connections_completed)} ended, {count(flow.connections_live)} live
          </dd>
          {flow.service && (
            <>
              <dt>service</dt>
              <dd>{flow.service.namespace}/{flow.service.name}:{flow.service.port}</dd>
            </>
          )}
          <dt>source labels</dt>
          <Labels text={flow.source_labels} />
          <dt>destination labels</dt>
          <Labels text={flow.dest_labels} />
        </dl>
        <button class="link" onClick={() => setRaw(!raw)}>{raw ? "hide JSON" : "show JSON"}</button>
        {raw && <pre>{JSON.stringify(flow, null, 2)}</pre>}
      </div>
    </aside>
  );
}
