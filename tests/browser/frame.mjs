// The frame of the dashboard: titles, the palette, keys, notices, and the pages under More.
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  axe,
  billow,
  data,
  equal,
  go,
  json,
  launch,
  main,
  ok,
  open,
  shot,
  start,
  submit,
  test,
  until,
} from './support.mjs';

const browser = await launch();
const stop = (id) => billow('stop', '--force', '--wait', id);

test('titles, unknown pages and jobs, and where the focus goes', async () => {
  const { page, context } = await open(browser, { allow: ['404'] });
  const id = submit('--name', 'titled', '--', 'sleep', '300');
  await go(page, `/jobs/${id}`);
  await until(
    async () => (await page.title()).includes(`Job ${id} titled`),
    'the job in the title',
  );
  await until(
    () => page.evaluate(() => document.activeElement.id === 'main'),
    'the focus on the content',
  );
  ok((await page.locator('#arrival').innerText()).includes(`Job ${id}`), 'it is announced');
  ok(
    (await page.locator('link[rel=icon]').getAttribute('href')).includes('svg'),
    'the window has an icon',
  );
  await go(page, '/no-such-page');
  await page.waitForSelector('h1:has-text("Page not found")');
  ok((await page.title()).includes('Page not found'), 'also in the title');
  await go(page, '/jobs/99999');
  await page.waitForSelector('h1:has-text("Job 99999 not found")');
  await page.waitForSelector('.empty a:has-text("Search all jobs")');
  await go(page, `/jobs/${id}`);
  await page.click('button:has-text("Stop")');
  await page.waitForSelector('dialog[open]:has-text("Stop job")');
  await page.click('dialog button:has-text("Cancel")');
  equal(json('describe', id).state, 'running', 'stopping asks first');
  stop(id);
  await context.close();
});

test('the palette takes what is typed before it is shown', async ({ page }) => {
  const id = submit('--name', 'appears-late', '--', 'sleep', '300');
  await page.route(/\/v1\/jobs\?.*search=|\.js$/, async (route) => {
    await new Promise((resolve) => setTimeout(resolve, 500));
    await route.continue();
  });
  await page.keyboard.press('Control+k');
  await page.keyboard.type('appears-lade');
  await page.keyboard.press('Backspace');
  await page.keyboard.press('Backspace');
  await page.keyboard.type('te');
  await page.keyboard.press('Enter');
  await page.waitForURL(new RegExp(`#/jobs/${id}$`));
  stop(id);
});

test('the palette goes to pages, jobs and nodes', async ({ page }) => {
  const id = submit('--name', 'find-me', '--', 'sleep', '300');
  await page.keyboard.press('Control+k');
  await page.waitForSelector('dialog.palette[open]');
  await page.keyboard.type('find-me');
  await page.waitForSelector('.palette li:has-text("find-me")');
  await axe(page, 'the palette');
  await shot(page, 'palette');
  await page.keyboard.press('Enter');
  await page.waitForURL(new RegExp(`#/jobs/${id}$`));
  await page.keyboard.press('Control+k');
  await page.keyboard.type('schedules');
  await page.keyboard.press('Enter');
  await page.waitForURL(/#\/schedules$/);
  const node = json('nodes').nodes[0].name;
  await page.keyboard.press('Control+k');
  await page.keyboard.type(`node ${node}`);
  await page.keyboard.press('Enter');
  await page.waitForURL(new RegExp(`#/nodes/${node}$`));
  await go(page, '/jobs');
  await page.waitForSelector('.vrow');
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.waitForURL(/#\/jobs\/\d+$/);
  stop(id);
});

test('failures stay in view until somebody dismisses them', async ({ page }) => {
  const broken = submit('--name', 'broken', '--', 'sh', '-c', 'exit 3');
  try {
    billow('wait', broken);
  } catch {
    /* with its code */
  }
  const holder = submit('--gpus', 8, '--', 'sleep', '300');
  await page.evaluate(async () => {
    const post = (path, body) =>
      fetch(path, {
        method: 'POST',
        headers: { 'X-Billow-Request': '1', 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
      }).then((r) => r.json());
    for (let i = 0; i < 60; i++) {
      const resources = { gpus: 8, share: { milli: 1000 } };
      const { id } = await post('/v1/jobs', { spec: { argv: ['true'], resources } });
      await post(`/v1/jobs/${id}/stop`, {});
    }
  });
  await page.reload();
  await page.waitForSelector('.attention li:has-text("broken")');
  await page.click('.attention li:has-text("broken") button.dismiss');
  await page.waitForSelector('.attention li:has-text("broken")', { state: 'detached' });
  await page.reload();
  await page.waitForSelector('.tile');
  equal(await page.locator('.attention li:has-text("broken")').count(), 0, 'it stays dismissed');
  stop(holder);
});

test('cards of a drained node are drained on every page, and none of them is free', async ({
  page,
}) => {
  const { name, gpus } = json('nodes').nodes[0];
  billow('drain', name, '--reason', 'a new fan');
  const words = async (selector) => [...new Set(await page.locator(selector).allInnerTexts())];
  await until(
    async () => (await words('.tile .share')).join() === 'drained',
    'the tiles of the overview',
  );
  equal(await words('.tile .who'), ['not in use'], 'they are not free');
  await page.waitForSelector('.card:has-text("GPUs free"):has-text("0")');
  await go(page, `/nodes/${name}`);
  await page.waitForSelector('.topology text');
  const drawn = await page.locator('.topology .num').allTextContents();
  equal(drawn, gpus.map((g) => `${g.index} · drained`), 'the picture of the node'); // prettier-ignore
  billow('undrain', name);
  await until(
    async () => (await page.locator('.topology .num').allTextContents())[0].includes('free'),
    'they are free again',
  );
});

test('a card that a reservation keeps free is reserved on every page', async ({ page }) => {
  const free = async () => page.locator('.card:has-text("GPUs free") .big').innerText();
  const before = parseFloat(await free());
  billow('reserve', '--gpus', 2, '--for', '2h', '--name', 'demo');
  const reserved = page.locator('.tile.reserved');
  await until(async () => (await reserved.count()) === 2, 'two tiles are reserved');
  equal(await reserved.first().locator('.who').innerText(), 'reserved', 'and say so');
  await until(async () => parseFloat(await free()) === before - 2, 'they are not free');
  const { name } = json('nodes').nodes[0];
  await go(page, `/nodes/${name}`);
  await page.waitForSelector('.topology text');
  const drawn = await page.locator('.topology .num').allTextContents();
  equal(drawn.filter((t) => t.includes('reserved')).length, 2, 'the picture of the node');
  const rows = await page.locator('[aria-label="GPUs as a table"] tbody tr').allInnerTexts();
  equal(rows.filter((t) => t.includes('reserved')).length, 2, 'its table');
  await go(page, '/run');
  await page.waitForSelector(`select[name=type] option:has-text("(${before - 2} free)")`, {
    state: 'attached',
  });
  billow('reserve', 'cancel', 'demo');
  await go(page, '/');
  await until(async () => (await reserved.count()) === 0, 'they are free again');
});

test('links of a node are drawn as wide as what goes over them', async ({ page }) => {
  const { name } = json('nodes').nodes[0];
  await go(page, `/nodes/${name}`);
  await page.waitForSelector('.topology .nvlink', { state: 'attached' }); // a line has no area
  const widest = () =>
    page
      .locator('.topology .nvlink:not(.thick)')
      .evaluateAll((all) => Math.max(...all.map((l) => Number(l.getAttribute('stroke-width')))));
  equal(await widest(), 1, 'nothing goes over them');
  const id = submit('--gpus', 2, '--name', 'talks', '--', 'sh', '-c', 'while :; do :; done');
  await until(async () => (await widest()) > 2, 'a load is seen on NVLink', 60);
  await page.waitForSelector('.topology text:has-text("NVLink"):has-text("/s")', {
    state: 'attached',
  });
  // The figure of the last GPU stands to the right of its link.
  const cut = await page.locator('svg.topology').evaluate((svg) => {
    const end = svg.viewBox.baseVal.width;
    return [...svg.querySelectorAll('text')]
      .map((t) => [t.textContent, t.getBBox()])
      .filter(([, box]) => box.x < 0 || box.x + box.width > end)
      .map(([text]) => text);
  });
  equal(cut, [], 'no text is cut');
  const longest = await page.locator('svg.topology').evaluate((svg) => {
    const last = [...svg.querySelectorAll('text.flow')].at(-1) ?? svg.querySelector('text');
    const x = Math.max(
      ...[...svg.querySelectorAll('.pcie')].map((l) => Number(l.getAttribute('x1'))),
    );
    last.setAttribute('class', 'small flow');
    last.setAttribute('x', x + 5);
    last.textContent = '1023.9 GiB/s';
    return last.getBBox().x + last.getBBox().width - svg.viewBox.baseVal.width;
  });
  ok(longest <= 0, `the longest figure fits beside the last GPU, not ${longest} px less`);
  stop(id);
  await until(async () => (await widest()) === 1, 'it is silent again', 60);
});

test('the log of a node that does not answer says so', async () => {
  const { page, context } = await open(browser, { allow: ['503'] });
  const { token } = await page.evaluate(async () => {
    const answer = await fetch('/v1/tokens', {
      method: 'POST',
      headers: { 'X-Billow-Request': '1', 'Content-Type': 'application/json' },
      body: JSON.stringify({ name: 'away', scope: 'node', node: 'away' }),
    });
    return answer.json();
  });
  const folder = mkdtempSync(join(tmpdir(), 'billow-away-'));
  writeFileSync(join(folder, 'token'), token, { mode: 0o600 });
  const agent = start(
    ...['agent', '--head', `unix:${data}/head.sock`, '--token-file', join(folder, 'token')],
    ...['--data', join(folder, 'data'), '--sim', '1xL4', '--node-name', 'away'],
  );
  const state = () => json('nodes').nodes.find((n) => n.name === 'away')?.state;
  await until(() => state() === 'ready', 'the second node', 60);
  const id = submit('--gpus', 1, '--gpu-type', 'L4', '--', 'sh', '-c', 'echo here; sleep 600');
  await until(() => json('describe', id).state === 'running', 'it runs there', 60);
  agent.kill('SIGKILL');
  await until(() => state() === 'unreachable', 'the head misses it', 60);
  await go(page, `/jobs/${id}`);
  await page.waitForSelector('.logwrap .finding', { timeout: 60000 });
  const text = await page.locator('.logwrap').innerText();
  ok(/cannot be read now/.test(text), `it is not called empty: ${text}`);
  ok(/away/.test(await page.locator('.logwrap .finding').innerText()), 'and the node is named');
  const back = start(
    ...['agent', '--head', `unix:${data}/head.sock`, '--token-file', join(folder, 'token')],
    ...['--data', join(folder, 'data'), '--sim', '1xL4', '--node-name', 'away'],
  );
  await page.waitForSelector('.log .ll:has-text("here")', { timeout: 60000 });
  stop(id);
  back.kill('SIGTERM');
  await until(() => state() !== 'ready', 'nothing more is placed there', 60);
  await context.close();
});

test('fields that are being edited are left alone', async ({ page }) => {
  await go(page, '/endpoints');
  await page.click('button:has-text("Deploy an endpoint")');
  await page.fill('section[aria-label="Deploy an endpoint"] input[name=name]', 'chat');
  await page.fill('input[name=command]', 'python3 -m http.server $PORT');
  await page.fill('input[name=gpus]', '0');
  await page.click('button:has-text("Deploy"):not(:has-text("an endpoint"))');
  await page.waitForSelector('h1:text-is("chat")');
  await page.fill('article.endpoint input[name=max]', '7');
  // Several refreshes later the typed number stands.
  for (let i = 0; i < 2; i++)
    await page.waitForResponse((r) => r.url().endsWith('/v1/endpoints/chat'));
  equal(await page.inputValue('article.endpoint input[name=max]'), '7', 'the typed number');
  await page.click('button:has-text("Scale")');
  await until(() => json('endpoints').endpoints?.[0]?.max === 7, 'it is what the head has');
  await go(page, '/activity');
  await page.waitForSelector('.activity li:has-text("endpoint chat was deployed")');
  await page.click('.activity a:has-text("endpoint chat was deployed")');
  await page.click('main button:text-is("Delete")');
  await page.click('dialog button:has-text("Delete")');
  await page.waitForSelector('h2:has-text("No endpoint is deployed")');
});

test('notices of the browser, as chosen', async ({ page, context }) => {
  await context.grantPermissions(['clipboard-write', 'notifications']);
  await context.addInitScript(() => {
    window.shown = [];
    window.Notification = class {
      static permission = 'granted';
      static requestPermission = async () => 'granted';
      constructor(title, options) {
        window.shown.push(`${title}: ${options.body}`);
      }
      close() {}
    };
  });
  await page.reload();
  await go(page, '/settings');
  await page.check('input[name=ends]');
  const id = submit('--name', 'short-one', '--', 'sleep', '3');
  billow('wait', id);
  await until(
    () => page.evaluate(() => window.shown.some((s) => s.includes('short-one succeeded'))),
    'a notice of its end',
  );
});

test('targets of notices are added, tried and removed, and keep their secret', async ({ page }) => {
  const { createServer } = await import('node:http');
  const got = [];
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (piece) => (body += piece));
    request.on('end', () => {
      got.push({ path: request.url, body: JSON.parse(body) });
      response.end('ok');
    });
  }).listen(0, '127.0.0.1');
  await new Promise((r) => server.on('listening', r));
  const url = `http://127.0.0.1:${server.address().port}/services/secret-path`;
  await go(page, '/settings');
  await page.selectOption('select[name=via]', 'slack');
  await page.fill('input[name=address]', url);
  await page.click('section[aria-label="Add a target"] button:has-text("Add")');
  await page.waitForSelector('td:has-text("Slack")');
  ok(!(await page.content()).includes('secret-path'), 'the secret part is not shown');
  await axe(page, 'notifications with a target');
  await shot(page, 'notifications');
  await page.click('button[aria-label="Test Slack 127.0.0.1"]');
  await until(() => got.length === 1, 'the test notice');
  equal(got[0].path, '/services/secret-path', 'at its address');
  ok(got[0].body.text.includes('Test notice'), 'in the form of Slack');
  const id = submit('--name', 'told', '--', 'true');
  billow('wait', id);
  await until(() => got.some((m) => m.body.text.includes(`told (job ${id}) succeeded`)), 'its end');
  await page.click('button[aria-label="Remove Slack 127.0.0.1"]');
  await page.click('dialog button:has-text("Remove")');
  await page.waitForSelector('td:has-text("Slack")', { state: 'detached' });
  server.close();
});

test('the pages under More list, add and delete', async ({ page }) => {
  for (const path of [
    '/more',
    '/settings',
    '/schedules',
    '/reservations',
    '/volumes',
    '/secrets',
    '/environments',
    '/webhooks',
    '/prices',
    '/invoices',
    '/pools',
    '/audit',
  ]) {
    await go(page, path);
    await page.waitForSelector('main h1');
    await page.waitForSelector('main :text("Loading…")', { state: 'detached' });
    equal(await page.locator('main [role=alert]').count(), 0, `${path} has no error`);
    await axe(page, path);
    await shot(page, path.slice(1));
  }
  await go(page, '/schedules');
  await page.fill('form input[name=name]', 'nightly');
  await page.fill('form input[name=cron]', '0 3 * * *');
  await page.fill('form input[name=command]', 'echo $HOME');
  await page.click('form button:has-text("Add")');
  await page.waitForSelector('td:has-text("nightly")');
  equal(json('schedule', 'list').schedules[0].command, `sh -c 'echo $HOME'`, 'by a shell');
  await page.click('button[aria-label="Delete nightly"]');
  await page.click('dialog button:has-text("Delete")');
  await page.waitForSelector('td:has-text("nightly")', { state: 'detached' });
  await go(page, '/reservations');
  await page.fill('form input[name=name]', 'sweep');
  await page.fill('form input[name=gpus]', '2');
  await page.fill('form input[name=hours]', '3');
  await page.click('form button:has-text("Reserve")');
  await page.waitForSelector('td:text-is("sweep")');
  await page.click('button[aria-label="Cancel sweep"]');
  await page.click('dialog button:has-text("Cancel"):not(.quiet)');
  await page.waitForSelector('.notices:has-text("cancelled")');
  await go(page, '/secrets');
  await page.fill('form input[name=name]', 'HF_TOKEN');
  await page.fill('form input[name=value]', 'hidden-value');
  await page.click('form button:has-text("Set")');
  await page.waitForSelector('td:has-text("HF_TOKEN")');
  ok(!(await page.content()).includes('hidden-value'), 'its value is not shown');
  await go(page, '/admin');
  await page.fill('form[aria-label="New user"] input[name=name]', 'ada');
  await page.click('button:has-text("Add the user")');
  await page.waitForSelector('td:text-is("ada")');
});

process.on('exit', () => {
  void browser.close();
});
await main();
