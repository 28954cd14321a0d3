// Shared by the browser tests: a Chromium page that is signed in to a head started by the caller, a
// record of errors in it, and waiting for conditions instead of time. The head's data directory
// comes in BILLOW_DATA, the binary in BILLOW_BIN; screenshots go to BILLOW_SHOTS.
import { execFileSync, spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { mkdirSync, readFileSync, existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const require = createRequire(join(root, 'web/package.json'));
export const { chromium } = require('playwright-core');
export const axeSource = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
export const data = process.env.BILLOW_DATA;
const binary = join(process.env.BILLOW_BIN, 'billow');
export const shots = process.env.BILLOW_SHOTS || '';
// In a job's environment, BILLOW_FILES is the digest of its files: commands must not pass it on.
const { BILLOW_FILES: cwd, ...env } = process.env;

export function billow(...args) {
  return execFileSync(binary, args.map(String), {
    encoding: 'utf8',
    env,
    cwd: cwd || undefined,
    maxBuffer: 64 << 20,
  });
}
export const json = (...args) => JSON.parse(billow(...args, '--json'));
export function start(...args) {
  return spawn(binary, args.map(String), { env, stdio: 'ignore' });
}
export const submit = (...args) => {
  const at = args.indexOf('--');
  return JSON.parse(billow('submit', '--json', ...args.slice(0, at), ...args.slice(at))).id;
};

export async function until(condition, what, seconds = 30) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`not within ${seconds} s: ${what}`);
    await new Promise((r) => setTimeout(r, 50));
  }
}

let launched;
export async function launch(options = {}) {
  const executablePath = process.env.CHROMIUM || '/usr/bin/chromium';
  if (!existsSync(executablePath)) {
    console.log(`skipped: ${executablePath} does not exist`);
    process.exit(77);
  }
  launched = await chromium.launch({
    executablePath,
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--hide-scrollbars'],
    ...options,
  });
  return launched;
}

// A one-time address that signs in. For work on the pages without building the binary, BILLOW_WEB
// names a folder with a bundle: a server in front of the head serves its files.
export async function signInUrl() {
  const { url } = json('dashboard');
  if (!process.env.BILLOW_WEB) return url;
  const { inFrontOf } = await import('./front.mjs');
  return url.replace(new URL(url).origin, await inFrontOf(new URL(url).origin));
}

// Opens a page, signs in with the one-time link, and records console messages, errors and requests.
export async function open(
  browser,
  {
    width = 1280,
    height = 900,
    dark = false,
    allow = [],
    scale = shots ? 1.5 : 1,
    wait,
    touch = false,
  } = {},
) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? 'dark' : 'light',
    deviceScaleFactor: scale,
    permissions: ['clipboard-write'],
    hasTouch: touch,
  });
  if (wait) context.setDefaultTimeout(wait); // ms
  const page = await context.newPage();
  const trouble = [];
  page.on('console', (m) => {
    if (m.type() === 'error' || m.type() === 'warning')
      if (!allow.some((a) => m.text().includes(a))) trouble.push(`${m.type()}: ${m.text()}`);
  });
  page.on('pageerror', (e) => trouble.push(`thrown: ${e.message}`));
  const hosts = new Set();
  page.on('request', (r) => hosts.add(new URL(r.url()).host));
  const url = await signInUrl();
  await page.goto(url);
  await page.waitForSelector('main h1, main .cards');
  return { context, page, trouble, hosts, base: new URL(url).origin };
}
// The files that index.html names: what a first load fetches.
export async function firstFiles(page, base) {
  const index = await (await page.request.get(`${base}/`)).text();
  return ['/', ...new Set(index.match(/\/assets\/[\w.-]+/g))];
}
export async function go(page, hash) {
  await page.evaluate((h) => {
    location.hash = h;
  }, hash);
  await page.waitForFunction((h) => location.hash === '#' + h, hash);
}
// The tasks of the main thread while something runs, in ms. CPU time: on a busy machine the wall
// clock measures the machine. Both are given.
export async function mainThread(browser, page, run) {
  await browser.startTracing(page, {
    categories: ['toplevel', 'disabled-by-default-devtools.timeline', 'devtools.timeline'],
  });
  await run();
  const events = JSON.parse((await browser.stopTracing()).toString()).traceEvents;
  const main = new Set(
    events
      .filter((e) => e.name === 'thread_name' && e.args.name === 'CrRendererMain')
      .map((e) => `${e.pid}/${e.tid}`),
  );
  const tasks = events.filter(
    (e) => e.ph === 'X' && /RunTask/.test(e.name) && main.has(`${e.pid}/${e.tid}`),
  );
  const over = (key) => tasks.filter((e) => e[key] > 50_000).map((e) => Math.round(e[key] / 1000));
  return {
    tasks: tasks.length,
    late: tasks.filter((e) => e.tdur > 16_667).length, // longer than a frame of 60 in a second
    total: tasks.reduce((sum, e) => sum + (e.tdur ?? 0) / 1000, 0),
    cpu: over('tdur'),
    wall: over('dur'),
    longest: Math.max(0, ...tasks.map((e) => (e.tdur ?? 0) / 1000)), // without a clock in some
  };
}
export async function shot(page, name) {
  if (!shots) return;
  mkdirSync(shots, { recursive: true });
  await page.screenshot({ path: join(shots, `${name}.png`) });
}
// A desktop, a tablet and a telephone, in both themes; ends as a desktop.
export async function atAllSizes(page, name, heights = [900, 1100, 844]) {
  if (!shots) return;
  for (const [i, width] of [1280, 820, 390].entries())
    for (const theme of ['light', 'dark']) {
      await page.setViewportSize({ width, height: heights[i] });
      await page.emulateMedia({ colorScheme: theme });
      await shot(page, `${name}-${width}-${theme}`);
    }
  await page.setViewportSize({ width: 1280, height: 900 });
}
export async function axe(page, where) {
  await page.evaluate(axeSource);
  const found = await page.evaluate(async () =>
    (
      await window.axe.run(document, {
        runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'],
      })
    ).violations.map(
      (v) =>
        `${v.id}: ${v.help} (${v.nodes
          .slice(0, 3)
          .map((n) => n.target.join(' '))
          .join('; ')})`,
    ),
  );
  if (found.length) throw new Error(`accessibility of ${where}:\n  ${found.join('\n  ')}`);
}

// Times that are not written as data/format.ts writes them: of machines, or with AM and PM. Logs and
// what people typed are theirs.
export async function times(page, where) {
  const found = await page.evaluate(() => {
    const seen = [];
    const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const parent = walk.currentNode.parentElement;
      if (parent.closest('.log, code, pre, textarea, .sr')) continue;
      const foreign = /\d{4}-\d\d-\d\dT\d\d:\d\d|\d ?[AP]M\b|GMT[+-]\d/;
      const text = walk.currentNode.textContent;
      if (foreign.test(text)) seen.push(text.slice(0, 80));
    }
    return seen;
  });
  if (found.length) throw new Error(`times of ${where}: ${found.join('; ')}`);
}

const cases = [];
// A case that takes an argument gets a page, open and signed in, and must leave no errors in the
// console.
export const test = (name, run) => cases.push({ name, run: run.length ? () => onPage(run) : run });
async function onPage(run) {
  const { page, context, trouble } = await open(launched);
  await run({ page, context });
  equal(trouble, [], 'no errors in the console');
  await context.close();
}
export function equal(got, want, what) {
  if (JSON.stringify(got) !== JSON.stringify(want))
    throw new Error(`${what}: ${JSON.stringify(got)} instead of ${JSON.stringify(want)}`);
}
export function ok(value, what) {
  if (!value) throw new Error(what);
}
// Runs the cases one after the other (or those whose name contains the given word) and reports all
// failures.
export async function main() {
  const wanted = process.argv[2] ?? '';
  let failed = 0;
  for (const { name, run } of cases) {
    if (wanted && !name.includes(wanted)) continue;
    const began = Date.now();
    try {
      await run();
      console.log(`ok    ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
    } catch (e) {
      failed++;
      console.log(`FAILED ${name}\n${e.stack}`);
    }
  }
  process.exit(failed ? 1 : 0);
}
