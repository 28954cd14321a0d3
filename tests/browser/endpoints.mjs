// The page of endpoints: a canary from its start to its end, what keys use, asynchronous calls, and
// what those see who may not change the endpoint.
import {
  atAllSizes,
  axe,
  billow,
  equal,
  go,
  json,
  launch,
  main,
  ok,
  open,
  shot,
  signInUrl,
  submit,
  test,
  until,
} from './support.mjs';

const browser = await launch();
const SERVE = 'exec python3 -m http.server --bind 127.0.0.1 $PORT';
const named = (name) => json('endpoints').endpoints.find((e) => e.name === name);
const part = (name, number) =>
  named(name).revisions.find((r) => r.number === number).release.traffic_pct;
const deploy = (name, ...options) =>
  billow('deploy', name, '--gpus', 0, ...options, '--', 'sh', '-c', SERVE);
const request = (name, path = '', options = {}) => fetch(named(name).url + path, options);

test('an endpoint is deployed with its options, shows them, and gets a domain and a model', async ({
  page,
}) => {
  await go(page, '/endpoints');
  await page.click('button:has-text("Deploy an endpoint")');
  const form = page.locator('section[aria-label="Deploy an endpoint"]');
  await form.locator('input[name=name]').fill('tuned');
  await form.locator('input[name=command]').fill(SERVE);
  await form.locator('input[name=gpus]').fill('0');
  await form.locator('input[name=min]').fill('1');
  await form.locator('summary:has-text("More options")').click();
  const field = (path) => form.locator(`[name="${path}"]`);
  await field('scaling.min_at').fill('always');
  await form.locator('[role=alert]:has-text("--min-at")').waitFor();
  await field('scaling.min_at').fill('Mon-Fri 08:00-18:00=2; Sat 10:00-12:00=1');
  await field('scaling.spend_per_hour').fill('5');
  await field('rollout.strategy').selectOption('recreate');
  await field('balance').selectOption('least-latency');
  await field('probes.live').fill('/');
  await field('probes.period_ns').fill('10s');
  await field('access').selectOption('open');
  await field('scaling.predict').check();
  const line = await form.locator('.line').innerText();
  const words =
    "--min-at 'Mon-Fri 08:00-18:00=2' --min-at 'Sat 10:00-12:00=1' --max-spend 5/h --predict on" +
    ' --live / --health-period 10s --balance least-latency --access open --strategy recreate';
  ok(line.includes(words), `as a command line: ${line}`);
  await axe(page, 'the deploy form with its options');
  await atAllSizes(page, 'deploy-options', [1400, 1400, 1400]);
  await form.locator('button:text-is("Deploy")').click();
  await page.waitForURL(/#\/endpoints\/tuned$/);
  const panel = page.locator('article.endpoint');
  await panel.locator('.settings').waitFor();
  const { policy } = await until(() => named('tuned'), 'the endpoint');
  equal(
    [policy.scaling, policy.rollout, policy.balance, policy.probes, policy.access],
    [
      {
        min_at: ['Mon-Fri 08:00-18:00=2', 'Sat 10:00-12:00=1'],
        spend_per_hour: 5e9,
        predict: true,
      },
      { strategy: 'recreate' },
      'least-latency',
      { period_ns: 10e9, live: '/' },
      'open',
    ],
    'what the head has',
  );
  const said = await panel.locator('.settings .tag').allInnerTexts();
  for (const each of [
    'min at: Mon-Fri 08:00-18:00=2; Sat 10:00-12:00=1',
    'max spend: 5/h',
    'predict',
    'live: /',
    'balance: least-latency',
    'strategy: recreate',
  ])
    ok(said.includes(each), `${each} is not among ${said.join('; ')}`);

  await panel.locator('summary:has-text("Domains and models")').click();
  await panel.locator('form[data-kind=domain] input').fill('api.example.org');
  await panel.locator('form[data-kind=domain] button').click();
  await panel.locator('li:has-text("api.example.org")').waitFor();
  await panel.locator('form[data-kind=model] input').fill('small');
  await panel.locator('form[data-kind=model] button').click();
  await panel.locator('li:has-text("small model at /v1")').waitFor();
  equal(
    json('domain', 'list').domains.map((d) => [d.name, d.endpoint]),
    [['api.example.org', 'tuned']],
    'the domain',
  );
  equal(
    json('model', 'list').models.map((m) => m.name),
    ['small'],
    'the model',
  );
  await axe(page, 'an endpoint with settings, a domain and a model');
  await atAllSizes(page, 'endpoint-settings', [1400, 1400, 1400]);
  await panel.locator('button[aria-label="Remove the model small"]').click();
  await page.click('dialog button:has-text("Remove")');
  await until(() => json('model', 'list').models.length === 0, 'the model is removed');

  // A new revision keeps what the form was not given.
  await page.click('button:has-text("Deploy a revision")');
  const next_form = page.locator('section[aria-label="Deploy a revision of tuned"]');
  equal(await next_form.locator('input[name=name]').inputValue(), 'tuned', 'of this endpoint');
  await next_form.locator('input[name=command]').fill(SERVE);
  await next_form.locator('input[name=gpus]').fill('0');
  await next_form.locator('summary:has-text("More options")').click();
  const live = next_form.locator('[name="probes.live"]');
  equal(await live.inputValue(), '/', 'the options of the revision before');
  await live.fill('');
  await next_form.locator('button:text-is("Deploy")').click();
  await until(() => named('tuned').revisions.length === 2, 'a second revision');
  await until(() => named('tuned').revision === 2, 'it serves');
  const next = named('tuned').policy;
  equal([next.probes, next.balance], [{ period_ns: 10e9 }, 'least-latency'], 'only that changed');
  billow('delete', 'tuned');
});

test('a canary is started, gets another share, is promoted, and another one is ended', async ({
  page,
}) => {
  deploy('chat', '--min', 1, '--max', 2, '--access', 'open');
  await go(page, '/endpoints');
  await page.waitForSelector('table.endpoints a:text-is("chat")');
  await page.click('button:has-text("Deploy an endpoint")');
  const form = page.locator('section[aria-label="Deploy an endpoint"]');
  await form.locator('input[name=name]').fill('cha');
  equal(await form.locator('input[name=traffic]').count(), 0, 'a new endpoint has no canary');
  await form.locator('input[name=name]').fill('chat');
  await form.locator('input[name=command]').fill(SERVE);
  await form.locator('input[name=gpus]').fill('0');
  await form.locator('input[name=traffic]').fill('100');
  await page.waitForSelector('[role=alert]:has-text("at most 99 %")');
  await form.locator('input[name=traffic]').fill('10');
  ok((await form.locator('.line').innerText()).includes('--traffic 10%'), 'as a command line');
  await axe(page, 'a form with a canary');
  await form.locator('button:text-is("Deploy")').click();
  const canary = page.locator('section[aria-label="Canary of chat"]');
  await canary.locator('h2:has-text("Revision 2 is a canary with 10 %")').waitFor();
  const { min, max, access } = named('chat');
  equal([min, max, access], [1, 2, 'open'], 'the settings of the revision before');
  for (let i = 0; i < 20; i++) equal((await request('chat')).status, 200, 'it answers');
  await canary.locator('td:has-text("2 canary")').waitFor();
  await axe(page, 'an endpoint with a canary');
  await shot(page, 'canary');

  await canary.locator('input[name=traffic]').fill('25');
  await canary.locator('button:has-text("Change the share")').click();
  await until(() => part('chat', 2) === 25, 'the share that the head has');
  await canary.locator('h2:has-text("25 %")').waitFor();
  await canary.locator('button:text-is("Promote")').click();
  await page.waitForSelector('dialog[open]:has-text("Promote revision 2")');
  equal(named('chat').revision, 1, 'promoting asks first');
  await page.click('dialog button:text-is("Promote")');
  await until(() => named('chat').revision === 2, 'the canary serves');
  await canary.waitFor({ state: 'detached' });

  deploy('chat', '--traffic', '5%');
  await canary.locator('h2:has-text("Revision 3 is a canary with 5 %")').waitFor();
  await canary.locator('button:text-is("End the canary")').click();
  await page.click('dialog button:text-is("End the canary")');
  await canary.waitFor({ state: 'detached' });
  await page.click('article.endpoint summary:has-text("earlier revision")');
  await page.waitForSelector('article.endpoint li:has-text("rolled back")');
  equal(named('chat').revision, 2, 'the old one serves');
  await page.click('button[aria-label="Roll chat back to revision 1"]');
  await page.click('dialog button:text-is("Roll back")');
  await until(() => named('chat').revision === 4, 'the first revision again');
  billow('delete', 'chat');
});

test('the list leads to the page of each endpoint, with the log of its replicas', async () => {
  const { page, context, trouble } = await open(browser, { allow: ['404'] });
  const talks = `echo serving on $PORT; ${SERVE}`;
  billow('deploy', 'one', '--gpus', 0, '--min', 1, '--access', 'open', '--', 'sh', '-c', talks);
  deploy('two', '--min', 0);
  equal((await request('one')).status, 200, 'it answers');
  await go(page, '/endpoints');
  const row = (name) => page.locator(`table.endpoints tr:has(a:text-is("${name}"))`);
  await until(
    async () => (await row('one').locator('td').nth(6).innerText()) === '1',
    'the request is counted',
    60,
  );
  equal(await row('one').locator('td').nth(3).innerText(), '1 ready', 'its replicas');
  await axe(page, 'a list of endpoints');
  await atAllSizes(page, 'endpoints-list', [1400, 1400, 1400]);
  await row('one').locator('a').click();
  await page.waitForURL(/#\/endpoints\/one$/);
  await page.waitForSelector('h1:text-is("one")');
  equal(await page.title(), 'Endpoint one – Billow', 'the title of the window');
  await page.waitForSelector('.log:has-text("serving on")');
  equal((await page.locator('.charts .chart').count()) > 2, true, 'its charts');
  const shares = json('describe', 'one').gateways;
  ok(shares.length > 0, 'it has a gateway');
  for (const { name, address } of shares)
    await page.waitForSelector(`.gateways tr:has-text("${name}"):has-text("${address}")`);
  await until(
    async () => {
      const [asked, , starts] = await page.locator('.endpoint-sum span').allInnerTexts();
      return asked === '1 requests' && starts === '1 cold starts and wakes';
    },
    'the sums over time are what its gateway counted',
    60,
  );
  await axe(page, 'the page of an endpoint');
  await atAllSizes(page, 'endpoint', [1400, 1400, 1400]);
  // Older links have the name in the query; the rest of it stays.
  await go(page, '/');
  await page.evaluate(() => {
    location.hash = '/endpoints?name=two&from=now-6h&to=now';
  });
  await page.waitForURL(/#\/endpoints\/two\?from=now-6h&to=now$/);
  await page.waitForSelector('h1:text-is("two")');
  await go(page, '/endpoints/no-such');
  await page.waitForSelector('h1:has-text("Endpoint no-such not found")');
  await axe(page, 'an endpoint that does not exist');
  await go(page, '/endpoints/two');
  await page.click('button:text-is("Delete")');
  await page.click('dialog button:text-is("Delete")');
  await page.waitForURL(/#\/endpoints$/);
  await row('two').waitFor({ state: 'detached' });
  billow('delete', 'one');
  equal(trouble, [], 'no errors in the console');
  await context.close();
});

test('the use of keys is shown', async ({ page }) => {
  deploy('keyed', '--min', 1, '--price', '0.01/request');
  const { key } = json('endpoint-key', 'keyed', '--name', 'ci', '--limit', '4/day');
  const headers = { Authorization: `Bearer ${key}` };
  const answers = [];
  for (let i = 0; i < 5; i++) answers.push((await request('keyed', '', { headers })).status);
  equal(answers, [200, 200, 200, 200, 429], 'four a day');
  await go(page, '/endpoints/keyed');
  await page.click('article.endpoint summary:has-text("1 key")');
  const row = page.locator('tr:has(td:text-is("ci"))');
  await until(
    async () => (await row.locator('td').allInnerTexts()).slice(4, 6).join() === '4,1',
    'four requests and one that was refused',
    60,
  );
  const cells = await row.locator('td').allInnerTexts();
  equal(
    [cells[2], cells[3], cells[8]],
    ['4 requests per day', 'never', '$0.04'],
    'its limit and charge',
  );
  ok(!(await page.content()).includes(key), 'the key itself is not shown');
  await axe(page, 'an endpoint with keys');
  // A key made here works, and stops working when it is deleted.
  const form = page.locator('form[aria-label="New key of keyed"]');
  await form.locator('input[name=name]').fill('from-browser');
  await form.locator('input[name=days]').fill('30');
  await form.locator('input[name=amount]').fill('0.5');
  await form.locator('select[name=of]').selectOption('usd');
  await form.locator('button').click();
  const made = await page.locator('.secret code').innerText();
  const caller = { headers: { Authorization: `Bearer ${made}` } };
  await until(async () => (await request('keyed', '', caller)).status === 200, 'it opens');
  const [, limits] = named('keyed').keys.map((k) => k.limits);
  equal(limits, ['$0.50 per day'], 'its limit');
  await page.click('button[aria-label="Delete the key from-browser"]');
  await page.click('dialog button:text-is("Delete")');
  await until(async () => (await request('keyed', '', caller)).status === 401, 'it no longer does');
  billow('delete', 'keyed');
});

test('asynchronous calls are listed, read and cancelled', async () => {
  deploy('later', '--min', 1, '--access', 'open');
  const headers = { Prefer: 'respond-async' };
  const accepted = await request('later', 'list?secret=word', { headers });
  equal(accepted.status, 202, 'it is a call');
  const { page, context, trouble } = await open(browser);
  await go(page, '/endpoints/later');
  await page.click('article.endpoint summary:has-text("Asynchronous calls")');
  const row = page.locator('tr:has-text("GET /list")');
  await row.locator('.state:has-text("done")').waitFor();
  const calls = await page.locator('details[open]').innerText();
  ok(!calls.includes('secret=word'), 'the query is left out');
  await row.locator('button:has-text("Show")').click();
  await page.waitForSelector('section[aria-label="Answer"] pre:has-text("Error code: 404")');
  await axe(page, 'an endpoint with calls');
  await shot(page, 'calls');
  await page.click('button:has-text("Close the answer")');

  const holder = submit('--gpus', 8, '--', 'sleep', '300');
  billow('deploy', 'starved', '--gpus', 8, '--min', 0, '--access', 'open', '--no-wait', '--', 'sh', '-c', SERVE); // prettier-ignore
  await until(() => named('starved')?.url, 'an address');
  equal((await request('starved', 'wait', { headers })).status, 202, 'accepted without a replica');
  await go(page, '/endpoints/starved');
  await page.click('article.endpoint summary:has-text("Asynchronous calls")');
  await page.click('button[aria-label="Cancel GET /wait"]');
  await page.click('dialog button:text-is("Cancel the call")');
  await page.waitForSelector('tr:has-text("GET /wait") .state:has-text("cancelled")');

  // Who may only look sees the calls, and no way to their answers.
  billow('user', 'create', 'vera');
  billow('project', 'member', 'default', 'vera', '--role', 'viewer');
  const { token } = json('token', 'create', 'of-vera', '--user', 'vera');
  const origin = new URL(await signInUrl()).origin;
  equal(trouble, [], 'no errors in the console');
  await context.clearCookies();
  await page.goto(`${origin}/#/endpoints?name=later`);
  await page.reload();
  await page.fill('input[name=token]', token);
  await page.click('button:has-text("Sign in")');
  await page.click('article.endpoint summary:has-text("Asynchronous calls")');
  await row.locator('.state:has-text("done")').waitFor();
  equal(
    await page
      .locator('article.endpoint button:not(.line *):not(.chart *):not(.filters *):not(.logwrap *)')
      .count(),
    0,
    'nothing to press',
  );
  equal(await page.locator('button:has-text("Deploy")').count(), 0, 'nothing to deploy');
  const told = await page.evaluate(() =>
    fetch('/v1/endpoints/later/calls', { headers: { 'X-Billow-Request': '1' } }).then((r) =>
      r.json(),
    ),
  );
  equal(Object.keys(told.calls[0]).includes('id'), false, 'the id opens the answer');
  for (const name of ['later', 'starved']) billow('delete', name);
  billow('stop', '--force', '--wait', holder);
  await context.close();
});

process.on('exit', () => {
  void browser.close();
});
await main();
