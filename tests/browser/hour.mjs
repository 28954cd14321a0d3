// The memory of a dashboard that stays open: one tab with the overview and one with a job whose log
// grows, while jobs come and go. BENCH_JOB is the job, BENCH_HEAD the head's process; BENCH_MINUTES
// says how long. A line of JSON every sixtieth of that time, after garbage collections in both tabs
// and in the worker they share: their heaps, document nodes and listeners, and the resident memory
// of the head and of each process of the browser.
//
// Allocators keep memory that has become free, and resident memory is more than what objects take.
// So after each quarter the browser's own account is printed too, process by process: `used_mb` is
// what objects take, `held_mb` what the allocators have for them.
//
// BENCH_SNAPSHOTS names a folder for counts of the job page's objects by constructor, after the
// first quarter and at the end: what grew is their difference.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { plainChromium } from './plain_chromium.mjs';
import { signInUrl } from './support.mjs';

const minutes = Number(process.env.BENCH_MINUTES || 60);
const samples = 60;
const browser = await plainChromium();
const url = await signInUrl();
const base = new URL(url).origin;
const tabs = { overview: await browser.open(url) };
await tabs.overview.wait('.tile, .cells a');
tabs.job = await browser.open(`${base}/#/jobs/${process.env.BENCH_JOB}`);
await tabs.job.wait('.title .state');
for (const tab of Object.values(tabs)) {
  await tab.send('Performance.enable');
  // The changes that the page drew: proof that it is alive, and how many updates the hour had.
  await tab.evaluate(`{
    window.drawn = 0;
    const change = { childList: true, subtree: true, characterData: true, attributes: true };
    new MutationObserver(() => window.drawn++).observe(document.body, change);
  }`);
}
const { targetInfos } = await browser.send('Target.getTargets');
const shared = targetInfos.find((t) => t.type === 'shared_worker');
const worker = shared && (await browser.attach(shared.targetId));

const residentMb = (pid) => {
  try {
    const found = readFileSync(`/proc/${pid}/status`, 'utf8').match(/VmRSS:\s+(\d+)/);
    return found ? Number(found[1]) / 1024 : 0;
  } catch {
    return 0; // it has ended
  }
};
async function collectGarbage() {
  // Twice: what the first leaves to finalizers is gone after the second.
  for (let n = 0; n < 2; n++)
    for (const tab of [...Object.values(tabs), worker])
      await tab?.send('HeapProfiler.collectGarbage');
}
async function sample(minute) {
  await collectGarbage();
  const { processInfo } = await browser.send('SystemInfo.getProcessInfo');
  const out = {
    minute,
    load: Number(readFileSync('/proc/loadavg', 'utf8').split(' ')[0]),
    head_rss_mb: residentMb(process.env.BENCH_HEAD),
    worker_heap_mb: worker ? (await worker.send('Runtime.getHeapUsage')).usedSize / 1e6 : 0,
    rss_mb: Object.fromEntries(processInfo.map((p) => [`${p.type} ${p.id}`, residentMb(p.id)])),
  };
  for (const [name, tab] of Object.entries(tabs)) {
    const { metrics } = await tab.send('Performance.getMetrics');
    const value = (wanted) => metrics.find((m) => m.name === wanted).value;
    out[name] = {
      heap_mb: value('JSHeapUsedSize') / 1e6,
      nodes: value('Nodes'),
      listeners: value('JSEventListeners'),
      drawn: await tab.evaluate('window.drawn'),
    };
  }
  console.log(JSON.stringify(out));
}

// Allocators by the names of the browser's memory dumps; what objects take in each.
const inUse = {
  malloc: 'malloc/allocated_objects',
  blink_gc: 'blink_gc/main/allocated_objects',
  v8: 'v8/main/heap',
  partition_alloc: 'partition_alloc/allocated_objects',
};
async function account(minute) {
  const dumps = {};
  browser.on('Tracing.dataCollected', ({ value }) => {
    for (const e of value)
      if (e.args?.dumps?.allocators) Object.assign((dumps[e.pid] ??= {}), e.args.dumps.allocators);
  });
  const done = new Promise((r) => browser.on('Tracing.tracingComplete', r));
  await browser.send('Tracing.start', {
    traceConfig: {
      includedCategories: ['disabled-by-default-memory-infra'],
      excludedCategories: ['*'],
      memoryDumpConfig: {},
    },
  });
  await browser.send('Tracing.requestMemoryDump', { deterministic: true });
  await browser.send('Tracing.end');
  await done;
  // A process that was too busy to answer is missing; the others are compared one by one.
  const mb = (dump, name) => parseInt(dump[name]?.attrs?.size?.value ?? '0', 16) / 1e6;
  const sum = (dump, names) => names.reduce((all, name) => all + mb(dump, name), 0);
  const pages = Object.entries(dumps).filter(([, dump]) => dump['v8/main/heap']);
  const processes = pages.map(([pid, dump]) => [
    pid,
    { used_mb: sum(dump, Object.values(inUse)), held_mb: sum(dump, Object.keys(inUse)) },
  ]);
  console.log(JSON.stringify({ account_minute: minute, ...Object.fromEntries(processes) }));
}

// Objects and their own bytes by type and constructor.
async function snapshot(name) {
  if (!process.env.BENCH_SNAPSHOTS) return;
  const chunks = [];
  browser.on('HeapProfiler.addHeapSnapshotChunk', ({ chunk }) => chunks.push(chunk));
  await tabs.job.send('HeapProfiler.takeHeapSnapshot', { reportProgress: false });
  const { snapshot: about, nodes, strings } = JSON.parse(chunks.join(''));
  const fields = about.meta.node_fields;
  const [type, label, size] = ['type', 'name', 'self_size'].map((f) => fields.indexOf(f));
  const byName = {};
  for (let at = 0; at < nodes.length; at += fields.length) {
    const kind = about.meta.node_types[type][nodes[at + type]];
    const text = /string/.test(kind) ? '' : strings[nodes[at + label]].slice(0, 80);
    const entry = (byName[`${kind} ${text}`] ??= { count: 0, bytes: 0 });
    entry.count++;
    entry.bytes += nodes[at + size];
  }
  writeFileSync(join(process.env.BENCH_SNAPSHOTS, `${name}.json`), JSON.stringify(byName));
}

const began = Date.now();
const passed = () => (Date.now() - began) / 60_000;
const { cookies } = await browser.send('Storage.getCookies');
const headers = {
  'X-Billow-Request': '1',
  'Content-Type': 'application/json',
  Cookie: cookies.map((c) => `${c.name}=${c.value}`).join('; '),
};
let churned = 0;
// A connection may be closed while it rests; an hour must not end by that.
async function submit(body, attempts = 5) {
  try {
    const answer = await fetch(`${base}/v1/jobs`, { method: 'POST', headers, body });
    const text = await answer.text();
    if (!answer.ok) console.error(`${answer.status} ${text}`);
  } catch (e) {
    if (attempts <= 1) throw e;
    await new Promise((r) => setTimeout(r, 1000));
    await submit(body, attempts - 1);
  }
}
async function churn() {
  while (passed() < minutes) {
    const spec = { argv: ['true'], name: `churn-${churned++}`, resources: { cpu_milli: 100 } };
    await submit(JSON.stringify({ spec }));
    await new Promise((r) => setTimeout(r, 2000));
  }
}
async function measure() {
  for (let n = 0; n <= samples; n++) {
    const left = (n * minutes) / samples - passed();
    if (left > 0) await new Promise((r) => setTimeout(r, left * 60_000));
    await sample(passed());
    if (n && n % (samples / 4) === 0) await account(passed());
    if (n === samples / 4 || n === samples) await snapshot(n === samples ? 'end' : 'quarter');
  }
}
await Promise.all([churn(), measure()]);
const trouble = (
  await Promise.all(Object.values(tabs).map((t) => t.evaluate('window.trouble')))
).flat();
console.log(JSON.stringify({ churned, trouble }));
await browser.close();
process.exit(0);
