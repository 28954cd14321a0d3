// Six pages of a very large installation, each opened anew by a browser that has nothing cached:
// first paint, blocking time of the main thread, bytes on the wire. Then twelve tabs at once, and
// the memory of a tab over many live updates. Prints figures as JSON, which `./dev bench eyes`
// checks. The head at BILLOW_DATA has the fleet and the jobs already; BENCH_JOB is a running one.
import { launch, mainThread, open, until } from './support.mjs';

const job = process.env.BENCH_JOB;
const updatesWanted = Number(process.env.BENCH_UPDATES || 3600);
const browser = await launch({
  args: [
    '--no-sandbox',
    '--disable-dev-shm-usage',
    '--disable-gpu',
    '--hide-scrollbars',
    '--js-flags=--expose-gc',
    '--enable-precise-memory-info',
  ],
});
const wait = 180_000; // a machine that has other work is slow; the figures are CPU time
const signedIn = await open(browser, { width: 1440, height: 1000, scale: 1, wait });
const { base } = signedIn;
const cookies = await signedIn.context.cookies();
await signedIn.context.close();
const out = { pages: {} };
const paths = ['/', '/jobs', `/jobs/${job}`, '/nodes', '/endpoints', '/costs'];
// What shows that the page is there, not only its frame.
const ready = {
  '/': '.cells a, .heat canvas, canvas',
  '/jobs': '.vrow',
  [`/jobs/${job}`]: '.title .state',
  '/nodes': 'main canvas, main table',
  '/endpoints': 'main h1',
  '/costs': 'main h1',
};

async function fresh() {
  const context = await browser.newContext({ viewport: { width: 1440, height: 1000 } });
  await context.addCookies(cookies);
  context.setDefaultTimeout(wait);
  return context;
}

for (const path of paths) {
  const context = await fresh();
  const page = await context.newPage();
  const cdp = await context.newCDPSession(page);
  await cdp.send('Network.enable');
  let bytes = 0,
    assets = 0;
  const urls = new Map();
  cdp.on('Network.responseReceived', (e) => urls.set(e.requestId, e.response.url));
  cdp.on('Network.dataReceived', (e) => {
    bytes += e.encodedDataLength;
  });
  cdp.on('Network.loadingFinished', (e) => {
    const url = urls.get(e.requestId) ?? '';
    if (url.includes('/assets/') || new URL(url || base).pathname === '/')
      assets += e.encodedDataLength;
  });
  const began = Date.now();
  let readyMs = 0;
  const main = await mainThread(browser, page, async () => {
    await page.goto(`${base}/#${path}`);
    await page.waitForSelector(ready[path]);
    readyMs = Date.now() - began;
    await page.waitForTimeout(4000); // what still comes counts too
  });
  const blocking = (tasks) => tasks.reduce((sum, ms) => sum + ms - 50, 0);
  out.pages[path.replace(job, 'ID')] = {
    first_paint_ms: await page.evaluate(
      () => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null,
    ),
    ready_ms: readyMs,
    blocking_ms: blocking(main.cpu),
    blocking_wall_ms: blocking(main.wall),
    longest_ms: main.longest,
    tasks: main.tasks,
    bytes,
    first_load_bytes: assets,
  };
  await context.close();
}

// Twelve tabs of one browser, all of them live.
{
  const context = await fresh();
  const tabs = [];
  for (let i = 0; i < 12; i++) tabs.push(await context.newPage());
  for (const [i, tab] of tabs.entries()) await tab.goto(`${base}/#${paths[i % paths.length]}`);
  const waits = [];
  for (const tab of tabs) {
    await tab.waitForSelector('main h1, main .cards');
    waits.push(
      await tab.evaluate(async () => {
        const began = performance.now();
        await (await fetch('/v1/status', { headers: { 'X-Billow-Request': '1' } })).text();
        return performance.now() - began;
      }),
    );
  }
  out.twelve_tabs_request_ms = waits;
  await context.close();
}

// As many live updates as an hour brings at one a second, as fast as the head sends them.
{
  const context = await fresh();
  const page = await context.newPage();
  await page.addInitScript(() => {
    window.seen = 0;
    const Real = window.SharedWorker;
    window.SharedWorker = class extends Real {
      constructor(...args) {
        super(...args);
        this.port.addEventListener('message', () => window.seen++);
      }
    };
  });
  await page.goto(`${base}/#/`);
  await page.waitForSelector(ready['/']);
  const heap = () =>
    page.evaluate(() => {
      window.gc();
      window.gc();
      return performance.memory.usedJSHeapSize;
    });
  // Not from the page, whose memory is measured.
  const post = async (path, data) => {
    const answer = await context.request.post(base + path, {
      data,
      headers: { 'X-Billow-Request': '1' },
    });
    if (!answer.ok()) throw new Error(`${path}: ${answer.status()} ${await answer.text()}`);
    return answer.json();
  };
  const startedAt = Date.now();
  const deadline = Date.now() + Number(process.env.BENCH_SECONDS || 600) * 1000;
  const heaps = [];
  let seen = 0;
  let next = 0;
  await until(() => page.evaluate(() => window.seen > 5), 'live updates', 60);
  while (seen < updatesWanted && Date.now() < deadline) {
    const resources = { gpus: 64, share: { milli: 1000 } };
    const { id } = await post('/v1/jobs', { spec: { argv: ['true'], name: 'churn', resources } });
    await post(`/v1/jobs/${id}/stop`, {});
    seen = await page.evaluate(() => window.seen);
    if (seen >= next) {
      heaps.push({ seen, bytes: await heap() });
      next = seen + updatesWanted / 12;
    }
  }
  heaps.push({ seen, bytes: await heap() });
  out.memory = { updates: seen, seconds: (Date.now() - startedAt) / 1000, heaps };
  await context.close();
}
console.log(JSON.stringify(out));
await browser.close();
