// The page in a real browser: on a lab with real packets, and on made-up answers for what a lab cannot have.
//
//   PAGE_TOOLS=DIR PAGE_PROGRAM=tortie [PAGE_PICTURES=DIR] node --test page.test.mjs
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { flow, graph, HOSTILE, serve } from "./fake.mjs";
import { address, startLab } from "./lab.mjs";

const { PAGE_TOOLS, PAGE_PROGRAM, PAGE_PICTURES, PAGE_CHROMIUM, PAGE_FROM_DIST } = process.env;
const { chromium } = createRequire(join(PAGE_TOOLS, "x.js"))("playwright-core");
const dist = join(dirname(fileURLToPath(import.meta.url)), "..", "dist");
const VIEWS = ["flows", "graph", "board", "matrix", "preview", "suggest", "top"];
const WIDE = { width: 1280, height: 760 };
const PHONE = { width: 390, height: 844 };

let browser;
before(async () => {
  browser = await chromium.launch({ executablePath: PAGE_CHROMIUM, args: ["--no-sandbox"] });
});
after(() => browser.close());

/** A page that notes whatever it must never do: ask others, fail, break the content security policy, open a dialog. */
async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: WIDE, colorScheme: "light", ...options });
  // The page as it is in dist, where the program has an older one in it.
  if (PAGE_FROM_DIST) await context.route(/whisker\.(js|css)$/, (route) => route.fulfill({ path: join(dist, basename(route.request().url())) }));
  const page = await context.newPage();
  const faults = [];
  const origin = new URL(url).origin;
  page.on("request", (request) => new URL(request.url()).origin === origin || faults.push(`asks ${request.url()}`));
  page.on("pageerror", (error) => faults.push(String(error)));
  page.on("dialog", (dialog) => { faults.push(`dialog ${dialog.message()}`); void dialog.dismiss(); });
  page.on("console", (message) => message.type() === "error" && /Content Security|Refused/.test(message.text()) && faults.push(message.text()));
  await page.goto(url);
  return { page, faults, close: () => context.close() };
}

/** Nothing sticks out at the side. */
async function fits(page) {
  const [width, inner] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(width <= inner, `${width} pixels wide in ${inner}`);
}

async function picture(page, name) {
  if (PAGE_PICTURES) await page.screenshot({ path: join(PAGE_PICTURES, `whisker-${name}.png`) });
}

describe("on a lab with real packets", () => {
  let lab;
  before(async () => {
    lab = await startLab(PAGE_PROGRAM, `page-${process.pid}`);
    console.log(`lab ui: the address was printed after ${lab.seconds.toFixed(1)} s`);
  });
  after(async () => {
    await lab?.stop();
    const left = lab?.run("status").stderr ?? "";
    assert.match(left, /not found/, "nothing is left");
  });

  test("a denied flow, the policy that denied it, and the rule in its own words", async () => {
    const { page, faults, close } = await open(`${lab.url}?action=Deny`);
    const row = page.locator(".row", { hasText: "laptop" }).filter({ hasText: "database" }).first();
    await row.click({ timeout: 30_000 });
    const details = page.locator("aside.details");
    await details.getByText("platform.guard, rule 0", { exact: false }).first().waitFor();
    await details.locator("pre.rule-text", { hasText: "projectcalico.org/namespace == 'guest'" }).first().waitFor();
    assert.match(await details.innerText(), /Denied at the destination/);
    await details.getByRole("button", { name: /explain it/ }).click();
    await page.locator("aside[aria-label=explanation] .stage.deny").waitFor();
    assert.match(await page.locator("aside[aria-label=explanation]").innerText(), /ingress\[0\]/);
    await page.keyboard.press("Escape");
    await page.locator("aside[aria-label='details of a flow']").waitFor();
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("aside").count(), 0);
    assert.deepEqual(faults, []);
    await close();
  });

  test("a packet that is denied is on the page soon", async () => {
    const { page, close } = await open(lab.url);
    await page.locator(".row").first().waitFor({ timeout: 30_000 });
    const target = address(lab, "shop/database");
    const times = [];
    for (const port of [4441, 4442, 4443]) {
      const seen = page.waitForFunction((text) => document.body.innerText.includes(text) && Date.now(), `tcp/${port}`, { polling: 20, timeout: 60_000 });
      // The table shows the newest first. Nobody answers, so bash gives up when it is told to; it says when it began.
      const sent = lab.run("exec", "guest/laptop", "--", "timeout", "0.3", "bash", "-c", `date +%s%3N; exec 3<>/dev/tcp/${target}/${port}`);
      const found = await seen.catch(() => assert.fail(`tcp/${port} is not on the page: ${sent.stderr}${sent.stdout}`));
      times.push((await found.jsonValue()) - Number(sent.stdout));
    }
    console.log(`packet to page: ${times.join(", ")} ms`);
    await close();
  });

  test("what staged policies would deny, and filters in the address", async () => {
    const { page, close } = await open(lab.url);
    await page.getByRole("button", { name: "would be denied" }).click();
    await page.locator(".row.would-deny", { hasText: "frontend" }).first().waitFor({ timeout: 30_000 });
    assert.match(page.url(), /staged_action=Deny/);
    await page.reload();
    assert.equal(await page.getByRole("button", { name: "would be denied" }).getAttribute("aria-pressed"), "true");
    await close();
  });

  test("graph, board, matrix, preview and suggestions", async () => {
    const { page, faults, close } = await open(`${lab.url}#graph`);
    await page.locator(".line.deny").first().waitFor({ state: "attached", timeout: 30_000 });
    await page.locator(".line.would_deny").first().waitFor({ state: "attached" });
    const islands = await page.locator(".island text").allTextContents();
    for (const name of ["shop", "payments", "guest"]) assert.ok(islands.includes(name), `${name} in ${islands}`);
    await page.keyboard.press("3");
    await page.locator(".card.staged").first().waitFor();
    assert.deepEqual((await page.locator(".board > .tier > h2").allInnerTexts()).slice(0, 2).map((text) => text.split(/\s/)[0]), ["platform", "default"]);
    await page.locator(".card", { hasText: "ledger" }).getByRole("button", { name: "try a change" }).click();
    assert.match(await page.locator("textarea").inputValue(), /name: ledger\n {2}namespace: payments/);
    await page.keyboard.press("Escape");
    await page.keyboard.press("4");
    const cell = page.getByRole("button", { name: /^shop\/frontend to payments\/ledger:5432: denied, .*dropped/ });
    await cell.click({ timeout: 30_000 });
    await page.locator("aside[aria-label=explanation] .stage.deny").waitFor();
    await page.keyboard.press("5");
    await page.locator("textarea").fill(
      "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: ledger, namespace: payments}\nspec:\n  selector: app == 'ledger'\n  types: [Ingress]\n  ingress: [{action: Allow, protocol: TCP}]\n",
    );
    await page.getByRole("button", { name: "Preview", exact: true }).last().click();
    await page.locator(".changes tr", { hasText: "shop/frontend" }).filter({ hasText: "allowed" }).first().waitFor();
    await page.locator("textarea").fill("kind: NetworkPolicy\nspec: {selektor: x}\n");
    await page.getByRole("button", { name: "Preview", exact: true }).last().click();
    await page.locator(".mistake").waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("6");
    await page.locator(".yaml", { hasText: "kind: StagedNetworkPolicy" }).waitFor({ timeout: 30_000 });
    await page.keyboard.press("7");
    await page.locator(".top li").first().waitFor();
    assert.deepEqual(faults, []);
    await close();
  });

  test("the age of data and losses are on every view, wide and narrow", async () => {
    for (const viewport of [WIDE, PHONE]) {
      const { page, faults, close } = await open(lab.url, { viewport });
      await page.locator(".row").first().waitFor({ timeout: 30_000 });
      for (const [place, view] of VIEWS.entries()) {
        await page.keyboard.press(String(place + 1));
        await page.locator(`nav button[aria-current=page]`).nth(0).waitFor();
        const status = await page.locator(".status").innerText();
        assert.match(status, /data .* old/, view);
        assert.match(status, /\d lost/, view);
        assert.ok(await page.locator(".status").isVisible());
        await fits(page);
      }
      assert.deepEqual(faults, []);
      await close();
    }
  });

  test("keys", async () => {
    const { page, close } = await open(lab.url);
    await page.locator(".row").first().waitFor({ timeout: 30_000 });
    await page.keyboard.press("j");
    await page.locator("aside.details").waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("t");
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    await page.keyboard.press("p");
    await page.getByRole("button", { name: /go on/ }).waitFor();
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "filter-text");
    await close();
  });

  test("pictures", { skip: !PAGE_PICTURES }, async () => {
    const views = [
      ["flows", "", WIDE, "light"], ["graph", "#graph", WIDE, "dark"], ["policies", "#board", WIDE, "light"], ["matrix", "#matrix", WIDE, "light"],
      ["preview", "#preview", WIDE, "light"], ["suggest", "#suggest", WIDE, "dark"], ["phone", "", PHONE, "dark"], ["phone-matrix", "#matrix", PHONE, "light"],
    ];
    for (const [name, part, viewport, colorScheme] of views) {
      const { page, close } = await open(`${lab.url}${part}`, { viewport, colorScheme });
      await page.waitForTimeout(4000);
      if (name === "flows") await page.locator(".row.deny", { hasText: "laptop" }).first().click();
      if (name === "phone") await page.locator(".row.deny").first().waitFor();
      if (name === "matrix") await page.getByRole("button", { name: /^guest\/laptop to shop\/database:5432/ }).click();
      if (name === "preview") {
        await page.getByRole("button", { name: "an example" }).click();
        await page.getByRole("button", { name: "Preview", exact: true }).last().click();
        await page.locator(".changes").waitFor();
      }
      await page.waitForTimeout(800);
      await picture(page, name);
      await close();
    }
  });
});

/** Frames for some seconds while something moves: how many a second, and the longest of 95 in 100, in milliseconds. */
async function frames(page, move) {
  await page.evaluate(() => {
    window.times = [];
    const step = (time) => { window.times.push(time); window.frame = requestAnimationFrame(step); };
    requestAnimationFrame(step);
  });
  await move();
  return page.evaluate(() => {
    cancelAnimationFrame(window.frame);
    const gaps = window.times.slice(1).map((time, place) => time - window.times[place]).sort((one, two) => one - two);
    const seconds = (window.times.at(-1) - window.times[0]) / 1000;
    return { rate: gaps.length / seconds, p95: gaps[Math.floor(gaps.length * 0.95)] };
  });
}

describe("on made-up answers", () => {
  test("hostile names and labels are texts", async () => {
    const hostile = flow(7, 1_800_000_000, () => HOSTILE);
    const text = HOSTILE;
    const sum = (packets) => ({ packets, bytes: packets, connections: packets });
    const decided = { allowed: sum(1), denied: sum(0), passed: sum(0) };
    const reports = [{ name: text, staged: true, decision: text, rules: [{ place: text, text, matches: false, failed: [text] }] }];
    const answers = {
      "/api/v1/graph": { ...graph(3, (what, id) => `${HOSTILE}${what}${id}`), left_out: 0 },
      "/api/v1/board": { tiers: [{ name: text, end: { ...decided }, policies: [{ kind: text, namespace: text, name: text, staged: true, ...decided, rules: [] }] }] },
      "/api/v1/matrix": { namespaces: { [text]: 1 }, too_many: false, senders: [text], receivers: ["b:80"], cells: [[{ v: "deny", r: 0, d: 1 }]], reasons: [text] },
      "/api/v1/explain": { verdict: "deny", notes: [text], flows: [{ source: text, destination: text, decidedBy: text, ifStaged: text, stages: [{ place: text, outcome: "deny", decidedBy: text, tiers: [{ name: text, policies: reports, end: text }], profiles: reports }] }] },
      "/api/v1/policy": { apiVersion: text, kind: text, metadata: { name: text }, spec: { selector: text, ingress: [{ action: text }, {}, { source: { selector: text } }, {}, {}] } },
      "/api/v1/impact": { changes: [{ flow: text, reporter: "Dst", before: "allowed", after: "denied", reason: text, packets: 1, connections: 1 }], unchanged: 0, outdated: 0, unknown: [text], notes: [text], flows: 1, left_out: 0 },
      "/api/v1/recommend": { yaml: `# ${text}\n${text}`, policies: 1, notes: [text], allowed: 1, denied: 0, differences: 0, flows: 1, left_out: 0 },
      "/api/v1/top": { items: [{ source: text, dest: text, allow: { bytes: 1, packets: 1, connections: 1 } }] },
      "/flows-filter-hints": { items: [{ value: text }] },
      status: { losses: [{ node: text, what: text, count: 3 }], silent: [{ node: text, age: 90 }] },
    };
    const server = await serve(dist, answers, (send) => void send("flows", [hostile]));
    const { page, faults, close } = await open(server.url);
    await page.locator(".losses summary").click();
    await page.locator(".losses li", { hasText: "<script>alert(2)</script>" }).nth(1).waitFor();
    await page.locator(".losses summary").click();
    await page.locator(".row").first().click();
    await page.locator(".rule-text").first().waitFor();
    for (const [place, view] of VIEWS.entries()) {
      await page.keyboard.press("Escape");
      await page.keyboard.press(String(place + 1));
      if (view === "matrix") await page.locator(".matrix td button").click();
      if (view === "preview") {
        await page.locator("textarea").fill("x");
        await page.getByRole("button", { name: "Preview", exact: true }).last().click();
      }
      const shown = page.waitForFunction((text) => document.body.textContent.includes(text), "<script>alert(2)</script>", { timeout: 20_000 });
      await shown.catch(async () => assert.fail(`${view} does not show the names: ${await page.locator("main").innerText()} ${faults}`));
      const made = await page.evaluate(() => document.querySelectorAll("#app img[src='x'], #app script, [onerror]").length);
      assert.equal(made, 0, view);
    }
    assert.deepEqual(faults, []);
    server.close();
    await close();
  });

  test("the graph shows what changed, is moved by dragging, and tells that from a click", async () => {
    let denied = false;
    const answer = () => {
      const found = graph(6);
      for (const edge of found.edges) delete edge.deny;
      if (denied) found.edges[0].deny = { bytes: 900, packets: 3, connections: 1 };
      return found;
    };
    const server = await serve(dist, { "/api/v1/graph": answer, "/flows-filter-hints": { items: [] } }, () => undefined);
    const { page, faults, close } = await open(`${server.url}#graph`);
    await page.locator(".line.allow").first().waitFor({ state: "attached" });
    assert.equal(await page.locator(".line.deny").count(), 0);
    denied = true;
    await page.locator(".line.deny").first().waitFor({ state: "attached", timeout: 30_000 });
    const place = () => page.locator(".mover").evaluate((mover) => getComputedStyle(mover).transform);
    const line = await page.locator(".edge .touch").first().evaluate((path) => {
      const point = path.getPointAtLength(path.getTotalLength() / 2).matrixTransform(path.getScreenCTM());
      return { x: point.x, y: point.y };
    });
    await page.mouse.move(line.x, line.y);
    await page.mouse.down();
    await page.mouse.move(line.x + 40, line.y + 30, { steps: 4 });
    await page.mouse.up();
    await page.waitForFunction(() => !document.querySelector(".shield"));
    assert.equal(await place(), "matrix(1, 0, 0, 1, 40, 30)");
    assert.equal(await page.locator(".popup").count(), 0, "dragging picks nothing");
    await page.mouse.click(line.x + 40, line.y + 30);
    await page.locator(".popup").waitFor();
    await page.getByRole("button", { name: "all of it" }).click();
    await page.waitForFunction(() => getComputedStyle(document.querySelector(".mover")).transform === "matrix(1, 0, 0, 1, 0, 0)");
    assert.deepEqual(faults, []);
    server.close();
    await close();
  });

  test("losses of nodes and silent nodes are named, wide and narrow", async () => {
    const losses = [{ node: "n1", what: "packets dropped because the collector was busy", count: 31_337 }, { what: "flows outside of the kept hour", count: 2 }];
    const server = await serve(dist, { status: { losses, silent: [{ node: "n2", age: 180 }] }, "/flows-filter-hints": { items: [] } }, (send) => void send("flows", [flow(1, 1_800_000_000)]));
    for (const [name, viewport] of [["losses", WIDE], ["phone-losses", PHONE]]) {
      const { page, faults, close } = await open(server.url, { viewport });
      await page.getByText("31.3 k lost, 1 silent").click();
      assert.deepEqual(await page.locator(".losses li").allInnerTexts(), [
        "node n1: 31337 packets dropped because the collector was busy",
        "here: 2 flows outside of the kept hour",
        "node n2: not heard from for 3 min, its flows may be missing",
      ]);
      const box = await page.locator(".losses ul").boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= viewport.width, JSON.stringify(box));
      await fits(page);
      await picture(page, name);
      assert.deepEqual(faults, []);
      await close();
    }
    server.close();
  });

  test("20,000 flows that change, and 500 nodes", async () => {
    const start = 1_800_000_000;
    // Figures of some edges change from answer to answer, as in a cluster.
    let answers = 0;
    const answer = () => {
      const found = graph(500);
      answers += 1;
      for (const edge of found.edges) if (edge.from % 10 === answers % 10) edge.allow.bytes *= 1 + answers;
      return found;
    };
    const server = await serve(dist, { "/api/v1/graph": answer, "/flows-filter-hints": { items: [] } }, (send) => {
      for (let first = 0; first < 20_000; first += 500) send("flows", Array.from({ length: 500 }, (_, id) => flow(first + id, start)));
      let round = 0;
      const timer = setInterval(() => {
        round += 1;
        send("flows", Array.from({ length: 100 }, (_, id) => flow((round * 100 + id) % 20_000, start)));
      }, 100);
      return () => clearInterval(timer);
    });
    const { page, faults, close } = await open(server.url);
    await page.getByText("20 k rows").waitFor({ timeout: 60_000 });
    const table = await frames(page, async () => {
      for (let step = 0; step < 60; step += 1) {
        await page.mouse.move(600, 400);
        await page.mouse.wheel(0, step % 2 ? -700 : 1500);
        await page.waitForTimeout(50);
      }
    });
    await page.keyboard.press("2");
    await page.waitForFunction(() => document.querySelectorAll(".node").length === 500, undefined, { timeout: 60_000 });
    // The first drawing is no moving: it is over when frames come again.
    const first = await page.evaluate(() => new Promise((done) => {
      const begin = performance.now();
      requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - begin)));
    }));
    await page.mouse.move(500, 400);
    const drawn = await frames(page, async () => {
      await page.mouse.down();
      for (let step = 0; step < 120; step += 1) {
        await page.mouse.move(500 + 150 * Math.sin(step / 9), 400 + 80 * Math.cos(step / 9));
        await page.waitForTimeout(16);
      }
      await page.mouse.up();
    });
    const heap = await page.evaluate(() => performance.memory?.usedJSHeapSize ?? 0);
    const say = (what, found) => console.log(`${what}: ${found.rate.toFixed(1)} frames/s, 95 of 100 within ${found.p95.toFixed(1)} ms`);
    say("20,000 rows, 1,000 updates/s, scrolling", table);
    say("graph of 500 nodes and 1,500 edges, moving", drawn);
    console.log(`graph: ${first.toFixed(0)} ms until it was drawn`);
    console.log(`heap: ${(heap / 1e6).toFixed(0)} MB`);
    assert.deepEqual(faults, []);
    server.close();
    await close();
  });
});
