// The memory of a dashboard that stays open: one tab with the overview and one with a job whose log
// grows, while jobs come and go. Each minute it prints a line of JSON with both tabs' heaps after a
// garbage collection, their document nodes and listeners, the resident memory of the browser's page
// processes and of the head (BENCH_HEAD). BENCH_JOB is the job; BENCH_MINUTES says how long.
//
// Resident memory is more than what the pages use: allocators keep pages that have become free, and
// the debugging interface keeps bodies of requests. So after each sixth of the time the browser's
// own account of its memory is read after a garbage collection: `used` is what objects take, `held`
// what the allocators have for them, `buffers` the part of `used` that is array buffers, in which
// the debugging interface keeps those bodies.
import { readFileSync } from 'node:fs';
import { launch, open } from './support.mjs';

const minutes = Number(process.env.BENCH_MINUTES || 60);
const every = Number(process.env.BENCH_SAMPLE_SECONDS || 60) * 1000;
const browser = await launch();
const {
  context,
  page: overview,
  base,
  trouble,
} = await open(browser, {
  width: 1440,
  scale: 1,
  wait: 180_000,
});
await overview.waitForSelector('.tile, .cells a');
const job = await context.newPage();
await job.goto(`${base}/#/jobs/${process.env.BENCH_JOB}`);
await job.waitForSelector('.title .state');
const whole = await browser.newBrowserCDPSession();
const sessions = {};
for (const [name, page] of Object.entries({ overview, job })) {
  sessions[name] = await context.newCDPSession(page);
  await sessions[name].send('Performance.enable');
}
// The changes that the page drew: proof that it is alive, and how many updates the hour had.
for (const page of [overview, job])
  await page.evaluate(() => {
    window.drawn = 0;
    const change = { childList: true, subtree: true, characterData: true, attributes: true };
    new MutationObserver(() => window.drawn++).observe(document.body, change);
  });

const residentMb = (pid) => {
  const found = readFileSync(`/proc/${pid}/status`, 'utf8').match(/VmRSS:\s+(\d+)/);
  return found ? Number(found[1]) / 1024 : 0;
};
async function sample(minute) {
  const { processInfo } = await whole.send('SystemInfo.getProcessInfo');
  const renderers = processInfo.filter((p) => p.type === 'renderer');
  const out = {
    minute,
    load: Number(readFileSync('/proc/loadavg', 'utf8').split(' ')[0]),
    head_rss_mb: residentMb(process.env.BENCH_HEAD),
    pages_rss_mb: renderers.reduce((sum, p) => sum + residentMb(p.id), 0),
  };
  for (const [name, session] of Object.entries(sessions)) {
    await session.send('HeapProfiler.collectGarbage');
    const { metrics } = await session.send('Performance.getMetrics');
    const value = (wanted) => metrics.find((m) => m.name === wanted).value;
    out[name] = {
      heap_mb: value('JSHeapUsedSize') / 1e6,
      nodes: value('Nodes'),
      listeners: value('JSEventListeners'),
      drawn: await (name === 'job' ? job : overview).evaluate(() => window.drawn),
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
  const take = ({ value }) => {
    for (const e of value)
      if (e.args?.dumps?.allocators) Object.assign((dumps[e.pid] ??= {}), e.args.dumps.allocators);
  };
  whole.on('Tracing.dataCollected', take);
  const done = new Promise((r) => whole.once('Tracing.tracingComplete', r));
  await whole.send('Tracing.start', {
    traceConfig: {
      includedCategories: ['disabled-by-default-memory-infra'],
      excludedCategories: ['*'],
      memoryDumpConfig: {},
    },
  });
  await whole.send('Tracing.requestMemoryDump', { deterministic: true });
  await whole.send('Tracing.end');
  await done;
  whole.off('Tracing.dataCollected', take);
  // A process that was too busy to answer is missing; the others are compared one by one.
  const mb = (dump, name) => parseInt(dump[name]?.attrs?.size?.value ?? '0', 16) / 1e6;
  const sum = (dump, names) => names.reduce((all, name) => all + mb(dump, name), 0);
  const pages = Object.entries(dumps).filter(([, dump]) => dump['v8/main/heap']);
  const processes = pages.map(([pid, dump]) => [
    pid,
    {
      used_mb: sum(dump, Object.values(inUse)),
      held_mb: sum(dump, Object.keys(inUse)),
      buffers_mb: mb(dump, inUse.partition_alloc),
    },
  ]);
  console.log(JSON.stringify({ account_minute: minute, ...Object.fromEntries(processes) }));
}

const began = Date.now();
let churned = 0;
let accounted = 0;
let sampled = 0;
await sample(0);
while (Date.now() - began < minutes * 60_000) {
  const spec = { argv: ['true'], name: `churn-${churned++}`, resources: { cpu_milli: 100 } };
  const answer = await context.request.post(`${base}/v1/jobs`, {
    data: { spec },
    headers: { 'X-Billow-Request': '1' },
  });
  if (!answer.ok()) throw new Error(`${answer.status()} ${await answer.text()}`);
  await new Promise((r) => setTimeout(r, 2500));
  if (Date.now() - began > (sampled + 1) * every) {
    sampled++;
    await sample((Date.now() - began) / 60_000);
  }
  if (Date.now() - began > (accounted + 1) * minutes * 10_000) {
    accounted++;
    await account((Date.now() - began) / 60_000);
  }
}
console.log(JSON.stringify({ churned, trouble }));
await browser.close();
