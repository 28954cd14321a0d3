// A large fleet in the browser: measures the main thread. Prints figures as JSON, which `./dev
// bench eyes` checks. The head at BILLOW_DATA has the fleet and the jobs already; while this
// measures, jobs come and go.
import { gzipSync } from 'node:zlib';
import {
  firstFiles,
  go,
  launch,
  mainThread,
  open,
  shot,
  submit,
  billow,
  until,
} from './support.mjs';

const seconds = Number(process.env.SECONDS_EACH || 12);
const browser = await launch();
const { page, context, trouble, base } = await open(browser, {
  width: 1440,
  height: 1000,
});
const cdp = await context.newCDPSession(page);
await cdp.send('Performance.enable');
await cdp.send('Network.enable');
let updates = 0;
cdp.on('Network.eventSourceMessageReceived', () => {
  updates++;
});
const metric = async (name) =>
  (await cdp.send('Performance.getMetrics')).metrics.find((m) => m.name === name).value;
const out = { pages: {}, trouble };
await until(
  () => page.evaluate(() => document.querySelectorAll('.cells a').length >= 1000),
  'a thousand squares',
  60,
);
out.squares = await page.evaluate(() => document.querySelectorAll('.cells a').length);
const fetched = await page.evaluate(async () => {
  const began = performance.now();
  const text = await (await fetch('/metrics')).text();
  return { ms: performance.now() - began, bytes: text.length };
});
out.scrape = fetched;
for (const path of ['/', '/jobs', '/nodes', '/costs']) {
  await go(page, path);
  await page.waitForTimeout(1500);
  updates = 0;
  const script = await metric('ScriptDuration'),
    task = await metric('TaskDuration');
  const seen = await mainThread(browser, page, async () => {
    const until_ms = Date.now() + seconds * 1000;
    while (Date.now() < until_ms) {
      const id = submit('--gpus', 64, '--name', 'churn', '--', 'true');
      await page.waitForTimeout(400);
      if (path === '/jobs') await page.mouse.wheel(0, 2000);
      billow('stop', id);
    }
  });
  const n = Math.max(1, updates);
  out.pages[path] = {
    updates,
    script_ms_per_update: (((await metric('ScriptDuration')) - script) * 1000) / n,
    task_ms_per_update: (((await metric('TaskDuration')) - task) * 1000) / n,
    long_tasks_ms: seen.cpu,
    long_tasks_wall_ms: seen.wall,
    longest_ms: seen.longest,
    tasks: seen.tasks,
    rows_in_document: await page.evaluate(() => document.querySelectorAll('.vrow').length),
  };
  await shot(page, `fleet${path === '/' ? '' : path.replace('/', '-')}`);
}
await go(page, '/jobs');
await page.waitForSelector('.vrow');
out.jobs = Number((await page.locator('h1 small').innerText()).replace(/\D/g, ''));
const searched = await mainThread(browser, page, async () => {
  for (const word of ['c', 'ch', 'chu', '']) {
    await page.fill('main input[type=search]', word);
    await page.waitForTimeout(300);
  }
});
out.search_long_tasks_ms = searched.cpu;
out.search_long_tasks_wall_ms = searched.wall;
// Last, because a page that is loaded anew begins with everything.
out.bundle_bytes = 0;
for (const file of await firstFiles(page, base))
  out.bundle_bytes += gzipSync(await (await page.request.get(base + file)).body()).length;
out.paints_ms = [];
for (let i = 0; i < 7; i++) {
  await page.goto('about:blank'); // taking a large page down is not what opening one costs
  await page.goto(`${base}/?${i}#/`);
  await page.waitForSelector('.cells a');
  out.paints_ms.push(
    await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime),
  );
}
console.log(JSON.stringify(out));
await browser.close();
