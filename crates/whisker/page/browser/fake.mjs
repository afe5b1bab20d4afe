// A server of made-up answers, for what a lab cannot have: 20,000 flows, 500 nodes, names that are attacks. It serves the page
// as it is checked in, with the headers of the real server.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const TYPES = { "index.html": "text/html; charset=utf-8", "whisker.js": "text/javascript; charset=utf-8", "whisker.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml" };
const CSP = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";
export const HOSTILE = `"><img src=x onerror=alert(1)><script>alert(2)</script>`;

/** A flow; `names` makes its names. */
export function flow(id, second, names = (what) => `${what}-${id % 400}`) {
  const denied = id % 7 === 0;
  const hit = { kind: "CalicoNetworkPolicy", name: names("policy"), namespace: names("ns"), tier: "default", action: denied ? "Deny" : "Allow", policy_index: 0, rule_index: id % 5, trigger: null };
  const time = (at) => new Date(at * 1000).toISOString();
  return {
    id, start_time: time(second), end_time: time(second + 15), action: hit.action, source_name: names("web"), source_namespace: names("shop"),
    source_labels: names("app=web"), dest_name: names("db"), dest_namespace: names("data"), dest_labels: names("app=db"), protocol: "tcp",
    dest_port: 1024 + (id % 6000), reporter: "Dst", policies: { enforced: [hit], pending: [hit] }, packets_in: id, packets_out: id, bytes_in: id * 100,
    bytes_out: id * 50, source_type: "WorkloadEndpoint", dest_type: "WorkloadEndpoint", connections_started: 1, connections_completed: 1, connections_live: 0,
    ...(id % 11 === 0 && !denied ? { would: "Deny" } : {}),
  };
}

/** A graph of so many nodes, each connected to a few others. */
export function graph(count, names = (what, id) => `${what}-${id}`) {
  const nodes = Array.from({ length: count }, (_, id) => ({ namespace: names("ns", id % 25), name: names("pod", id), type: "WorkloadEndpoint" }));
  const sum = (packets) => ({ bytes: packets * 900, packets, connections: 1 });
  const edges = nodes.flatMap((_, from) => [1, 7, 31].map((step) => ({ from, to: (from + step) % count, allow: sum(from + 1), ...(from % 9 === 0 ? { deny: sum(3) } : {}), ports: ["tcp/80"] })));
  return { nodes, edges: edges.filter((edge) => edge.from !== edge.to), collapsed: false, left_out: 0 };
}

/** Starts it; `answers` are the values behind paths, or functions that make them, and `status` what differs in the source's, `live` writes into the stream. */
export async function serve(dist, answers, live) {
  const server = createServer((request, response) => {
    const path = new URL(request.url, "http://x").pathname;
    response.setHeader("content-security-policy", CSP);
    const name = path === "/" ? "index.html" : path.slice(1);
    if (TYPES[name]) {
      response.setHeader("content-type", TYPES[name]);
      response.end(readFileSync(join(dist, name)));
    } else if (path === "/api/v1/live") {
      response.setHeader("content-type", "text/event-stream");
      const send = (type, value) => response.write(`event: ${type}\ndata: ${JSON.stringify(value)}\n\n`);
      send("status", { source: "a test", problem: null, age: 1, received: 1, keys: 1, losses: [], nodes: 2, silent: [], ...answers.status });
      const stop = live(send);
      response.on("close", () => stop?.());
    } else if (answers[path]) {
      response.setHeader("content-type", "application/json");
      const answer = answers[path];
      response.end(JSON.stringify(typeof answer === "function" ? answer() : answer));
    } else {
      response.statusCode = 404;
      response.end(JSON.stringify({ error: "not found" }));
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => { server.closeAllConnections(); server.close(); } };
}
