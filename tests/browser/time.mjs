// Pictures of time: the Gantt chart by mouse and keyboard, ranges in the address, saving a chart,
// and jobs over one another. The timeline is a fixed answer, so that positions are known.
import { axe, billow, equal, go, launch, main, ok, open, submit, test, until } from './support.mjs';

const browser = await launch();
const now = Date.now();
const hour = 3_600_000;
const blocks = [
  { from: now - 6 * hour, to: now - 3 * hour, kind: 'run', job: '1', name: 'train', user: 'ana' },
  { from: now - 3 * hour, to: now, kind: 'idle', waste_usd: 7.5 },
];
const answer = {
  from_ms: now - 30 * hour,
  to_ms: now,
  now_ms: now,
  step_ms: 0,
  truncated: false,
  nodes: [{ node: 'rack1', gpus: [{ gpu: 0, type: 'H100', blocks }] }],
};
async function opened(options) {
  const it = await open(browser, options);
  const give = (r, body) =>
    r.fulfill({ contentType: 'application/json', body: JSON.stringify(body) });
  await it.page.route('**/v1/timeline?*', (r) => give(r, answer));
  for (const path of ['openapi.json', 'routes'])
    await it.page.route(`**/v1/${path}`, async (r) => {
      const got = await r.fetch();
      if (!got.ok()) return r.fulfill({ response: got });
      const body = await got.json();
      if (body.paths) body.paths['/v1/timeline'] = {};
      if (body.routes) body.routes.push('GET /v1/timeline');
      return give(r, body);
    });
  await it.page.reload();
  await it.page.waitForSelector('main h1, main .cards');
  return it;
}

for (const dark of [false, true])
  test(`the Gantt chart by keyboard, and its table, ${dark ? 'dark' : 'light'}`, async () => {
    const { page, context, trouble } = await opened({ dark });
    await go(page, '/nodes?from=now-1d&to=now');
    await page.waitForSelector('.gantt-scroll');
    await until(
      async () => (await page.locator('.gantt-sum').innerText()).includes('$7.50 unallocated'),
      'the dollars of the idle time',
    );
    await axe(page, 'nodes');
    await page.focus('.gantt-scroll');
    await page.keyboard.press('ArrowDown');
    ok((await page.locator('.gantt-card').innerText()).includes('train'), 'the first block');
    await page.keyboard.press('ArrowRight');
    ok((await page.locator('.gantt-card').innerText()).includes('$7.50'), 'the idle time');
    await page.click('.gantt-table summary');
    await page.waitForSelector('.gantt-table td a[href="#/jobs/1"]');
    await page.focus('.gantt-scroll');
    await page.keyboard.press('ArrowLeft');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => location.hash === '#/jobs/1');
    equal(
      trouble.filter((t) => !t.includes('404')),
      [],
      'errors in the page',
    );
    await context.close();
  });

test('zooming changes the address, and an address restores the view', async () => {
  const { page, context } = await opened({});
  await go(page, '/nodes?from=now-6h&to=now');
  await page.waitForSelector('[aria-label="Time range"] button[aria-pressed="true"]');
  equal(
    await page.locator('[aria-label="Time range"] [aria-pressed="true"]').innerText(),
    '6 h',
    'the preset of the address',
  );
  await page.click('button[aria-label="Zoom in"]');
  await page.waitForFunction(() => /from=\d{13}&to=\d{13}/.test(location.hash));
  const [from, to] = (await page.evaluate(() => location.hash)).match(/\d{13}/g).map(Number);
  ok(Math.abs(to - from - 3 * hour) < 60_000, `half of six hours: ${to - from}`);
  await context.close();
});

test('jobs are laid over one another with what they print, and saved as CSV', async () => {
  const script = 'for i in 1 2 3 4 5 6; do echo "step=$i loss=0.$((9 - i))"; sleep 0.3; done';
  const ids = [1, 2].map((i) =>
    submit('--gpus', 0, '--name', `run-${i}`, '--', 'sh', '-c', script),
  );
  for (const id of ids) billow('wait', id);
  const { page, context, trouble } = await opened({});
  await go(page, `/compare?jobs=${ids.join(',')}`);
  const chart = page.locator('figure.chart', { hasText: 'loss' }).first();
  await chart.waitFor();
  await chart.locator('canvas').waitFor();
  equal(await chart.locator('.key').count(), 2, 'a line for each job');
  await axe(page, 'compare');
  await chart.locator('summary').click();
  const saved = page.waitForEvent('download');
  await chart.getByRole('button', { name: 'CSV' }).click();
  equal((await saved).suggestedFilename(), 'billow-loss.csv', 'the name of the file');
  equal(trouble, [], 'errors in the page');
  await context.close();
});

test('pointing at one chart shows the same moment in all others', async ({ page }) => {
  const id = submit('--gpus', 1, '--name', 'hovered', '--', 'sh', '-c', 'while :; do :; done');
  await go(page, `/jobs/${id}`);
  const charts = page.locator('figure.chart:has(canvas)');
  await until(async () => (await charts.count()) >= 2, 'two charts', 60);
  const shown = (n) => charts.nth(n).locator('.u-legend .u-value').first().textContent();
  await until(
    async () => {
      await charts.first().locator('.u-over').scrollIntoViewIfNeeded();
      const box = await charts.first().locator('.u-over').boundingBox();
      await page.mouse.move(box.x + box.width * 0.6, box.y + box.height / 2);
      await page.mouse.move(box.x + box.width * 0.7, box.y + box.height / 2);
      return /\d\d:\d\d/.test(await shown(0));
    },
    'the time under the pointer',
    60,
  );
  equal(await shown(1), await shown(0), 'the second chart shows the same moment');
  billow('stop', '--force', '--wait', id);
});

test('a page that stays open reads only what is new of the journal', async ({ page }) => {
  const asked = [];
  page.on('request', (r) => {
    const url = new URL(r.url());
    if (url.pathname === '/v1/events') asked.push(Number(url.searchParams.get('after')));
  });
  const id = submit('--name', 'watched', '--', 'sleep', '300');
  await go(page, `/jobs/${id}`);
  await until(() => asked.length >= 2, 'the journal is read for annotations', 60);
  equal(asked[0], 0, 'at first all of it');
  billow('wait', submit('--', 'true'));
  await until(() => asked.at(-1) > asked[1], 'what came since is read', 90);
  equal(asked.filter((after) => after === 0).length, 1, 'and nothing twice');
  billow('stop', '--force', '--wait', id);
});

await main();
