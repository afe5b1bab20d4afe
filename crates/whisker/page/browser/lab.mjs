// A lab with its page, as `tortie lab ui` gives it, for as long as a test takes.
import { spawn, spawnSync } from "node:child_process";

/** Starts it; resolves when the page's address was printed. */
export async function startLab(program, name) {
  const begun = performance.now();
  const child = spawn(program, ["lab", "--lab", name, "ui"], { stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  const url = await new Promise((resolve, reject) => {
    const look = (piece) => {
      text += piece;
      const found = /Open (http:\/\/\S+)/.exec(text);
      if (found) resolve(found[1]);
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.on("exit", (code) => reject(new Error(`lab ui ended with ${code}:\n${text}`)));
    setTimeout(() => reject(new Error(`lab ui printed no address:\n${text}`)), 120_000).unref();
  });
  const seconds = (performance.now() - begun) / 1000;
  // Without a socket as its input: bash would take itself for a login and read the user's files first.
  const run = (...words) => {
    const done = spawnSync(program, ["lab", "--lab", name, ...words], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
    if (done.error) throw done.error;
    return done;
  };
  const stop = async () => {
    const ended = new Promise((resolve) => child.on("exit", resolve));
    child.kill("SIGINT");
    return ended;
  };
  return { url, seconds, run, stop };
}

/** The address of a pod. */
export function address(lab, pod) {
  const state = JSON.parse(lab.run("status", "-o", "json").stdout);
  return state.pods[pod].addresses[0];
}
