// Bundles the page into one js, one css, one html and the icon. The same sources give the same bytes.
// Usage: node build.mjs TOOLS OUT [tests]
import { createRequire } from "node:module";
import { copyFile, mkdir, readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [tools, out, tests] = process.argv.slice(2);
if (!tools || !out) throw new Error("usage: node build.mjs TOOLS OUT [tests]");
const here = dirname(fileURLToPath(import.meta.url));
const { build } = createRequire(join(tools, "x.js"))("esbuild");
const options = {
  absWorkingDir: here,
  nodePaths: [join(tools, "node_modules")],
  bundle: true,
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  target: ["es2022"],
  logLevel: "warning",
  tsconfigRaw: "{}",
};
await mkdir(out, { recursive: true });
if (tests) {
  const files = (await readdir(join(here, "test"))).filter((name) => name.endsWith(".test.ts"));
  const entryPoints = files.map((name) => `test/${name}`);
  await build({ ...options, entryPoints, outdir: out, platform: "node", format: "esm", outExtension: { ".js": ".mjs" } });
} else {
  const minified = { ...options, minify: true };
  await build({ ...minified, entryPoints: ["src/main.tsx"], outfile: join(out, "whisker.js"), format: "iife" });
  await build({ ...minified, entryPoints: ["src/whisker.css"], outfile: join(out, "whisker.css") });
  for (const name of ["index.html", "icon.svg"]) await copyFile(join(here, "src", name), join(out, name));
}
