// The dashboard against a real head with simulated GPUs, in Debian's Chromium. Each case is a
// user's action.
import { join } from 'node:path';
import { writeFileSync, readFileSync } from 'node:fs';
import {
  axe,
  billow,
  data,
  equal,
  firstFiles,
  go,
  json,
  launch,
  main,
  ok,
  open,
  root,
  shot,
  submit,
  test,
  times,
  until,
} from './support.mjs';

const browser = await launch();
const job = (id) => json('describe', id);
const stop = (...ids) => {
  for (const id of ids)
    try {
      billow('stop', '--force', '--wait', id);
    } catch {
      /* it has ended by itself */
    }
};
const text = (page, selector) => page.locator(selector).first().innerText();

test('a job run from the form shows its price and its log, live', async ({ page }) => {
  await go(page, '/run');
  await page.fill(
    'input[name=command]',
    `sh -c 'echo begun; while [ ! -e ${join(data, 'go')} ]; do sleep 0.1; done; echo "done <b>bold</b>"; printf "\\033[31mred\\033[0m\\n"'`,
  );
  await page.fill('input[name=gpus]', '2');
  await page.fill('input[name=name]', 'from-the-form');
  const line = await text(page, '.line code');
  ok(
    line.includes('--gpus 2') && line.includes('--name from-the-form'),
    `the command line says what the form says: ${line}`,
  );
  ok(/\$\d+\.\d\d/.test(await text(page, '.price')), `a price: ${await text(page, '.price')}`);
  await shot(page, 'run');
  await page.click('main form button.full');
  await page.waitForURL(/#\/jobs\/\d+/);
  await page.waitForSelector('.log .ll:has-text("begun")');
  equal(
    await page.locator('.log .ll:has-text("done")').count(),
    0,
    'nothing that is not written yet',
  );
  writeFileSync(join(data, 'go'), '');
  await page.waitForSelector('.log .ll:has-text("done <b>bold</b>")', {
    timeout: 20000,
  });
  equal(await page.locator('.log b').count(), 0, 'log text never becomes markup');
  equal(await page.locator('.log .a-r').innerText(), 'red', 'ANSI colours are shown');
  await page.waitForSelector('.title .state.succeeded', { timeout: 20000 });
  const first = page.url();
  await page.click('button:has-text("Run again")');
  await page.waitForURL((url) => url.href !== first && /#\/jobs\/\d+$/.test(url.href));
  await page.waitForSelector('.log .ll:has-text("done <b>bold</b>")', {
    timeout: 20000,
  }); // as it ran: the same name, command and GPUs
  await page.waitForSelector('h1:has-text("from-the-form")');
  await page.fill('input[aria-label="Find in the log"]', 'bold');
  await until(
    async () => (await page.locator('.log .ll').count()) === 1,
    'only the line that matches',
  );
});

test('a log cannot inject markup, script or style', async () => {
  const { page, context, trouble } = await open(browser);
  const evil = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script><style>body{display:none}</style>`;
  const id = submit('--', 'sh', '-c', `printf '%s\\n' "$0"`, evil);
  await go(page, `/jobs/${id}`);
  await page.waitForSelector('.log .ll:has-text("onerror")');
  equal(
    await page.locator('main img, main script, main style').count(),
    0,
    'no element came of it',
  );
  ok(!(await page.title()).includes('owned'), 'no script ran');
  equal(trouble, [], 'nothing was even tried');
  await context.close();
});

test('a job is suspended, gives its GPU back, and goes on where it was', async ({ page }) => {
  const id = submit(
    '--gpus',
    1,
    '--name',
    'pausable',
    '--',
    'sh',
    '-c',
    'i=0; while true; do i=$((i+1)); echo tick $i; sleep 0.1; done',
  );
  await go(page, `/jobs/${id}`);
  await page.waitForSelector('.log .ll:has-text("tick 5")');
  await page.click('button:has-text("Suspend")');
  await page.waitForSelector('.title .state.suspended', { timeout: 30000 });
  const ranAtSuspend = job(id).ran_s;
  await until(() => job(id).suspended_s >= 2, 'time suspended is counted');
  equal(job(id).ran_s, ranAtSuspend, 'time suspended is not time run');
  await until(
    async () => /ran \d+ s, suspended \d+ s/.test(await text(page, '.timeline .note')),
    'both are told apart on the page',
  );
  const submitted = await text(page, '.timeline li');
  ok(/\d+ (s|min) ago, \d\d:\d\d$/.test(submitted), `a relative time: ${submitted}`);
  const ticks = async () =>
    Number((await page.locator('.log .ll').last().innerText()).split(' ')[1]);
  await until(async () => {
    const a = await ticks();
    await page.waitForTimeout(500);
    return (await ticks()) === a;
  }, 'a log that stands still');
  const before = await ticks();
  await go(page, '/');
  await until(
    async () => (await page.locator('.tile.used, .tile.idle').count()) === 0,
    'its GPU is free',
  );
  await go(page, `/jobs/${id}`);
  await page.click('button:has-text("Resume")');
  await page.waitForSelector('.title .state.running', { timeout: 30000 });
  await until(async () => (await ticks()) > before + 3, 'it goes on');
  ok(
    (await page.locator('.log').innerText()).includes(`tick ${before + 1}`) ||
      (await ticks()) > before,
    'where it was',
  );
  stop(id);
});

test('charts of a job show what it used, with a table beside each', async ({ page }) => {
  const id = submit(
    '--gpus',
    1,
    '--name',
    'train-llama',
    '--',
    'sh',
    '-c',
    'i=0; while true; do i=$((i+1)); [ $((i % 20000)) = 0 ] && echo "step $i loss 0.$((i / 20000 * 619 % 997))"; done',
  );
  await go(page, `/jobs/${id}`);
  await page.waitForSelector('.chart canvas', { timeout: 30000 });
  await until(
    async () => {
      const h = await page.evaluate(async (i) => (await fetch(`/v1/jobs/${i}/history`)).json(), id);
      return h.series.gpu_util_pct.some((v) => v > 20) && h.series.cpu_cores.some((v) => v > 0);
    },
    'points that show load',
    60,
  );
  await until(
    async () =>
      (await page.locator('.chart .sr caption').allInnerTexts()).some((t) => /^GPU(\.|$)/.test(t)),
    'a table for those who cannot see',
  );
  await page.waitForFunction(() =>
    [...document.querySelectorAll('.chart figcaption')].some((f) => /busy \d/.test(f.textContent)),
  );
  await shot(page, 'job');
  await go(page, `/nodes/${job(id).tasks[0].node}`);
  await page.waitForSelector('svg.topology');
  ok(
    (await page.locator('svg.topology').getAttribute('aria-label')).includes('NVLink'),
    'the wiring in words',
  );
  await page.waitForSelector('.chart canvas');
  await shot(page, 'node');
  stop(id);
});

test('cost totals equal the ledger to the cent', async () => {
  const { page, context, trouble, base } = await open(browser);
  const ids = [1, 2, 3].map((n) => submit('--gpus', n, '--', 'sleep', '2'));
  for (const id of ids) billow('wait', id);
  await go(page, '/costs');
  const cost = await page.request.get(`${base}/v1/cost?since=30d&by=project`);
  const ledger = (await cost.json()).total.charge_nano_usd;
  let sum = 0;
  for (let cursor = ''; ;) {
    const list = await page.evaluate(
      async (c) =>
        (
          await fetch(
            `/v1/jobs?state=succeeded,failed,stopped,lost&limit=1000&expand=1${c ? `&cursor=${c}` : ''}`,
          )
        ).json(),
      cursor,
    );
    sum += list.jobs.reduce((a, j) => a + (j.elements ? 0 : j.cost_nano_usd), 0);
    if (!(cursor = list.next)) break;
  }
  equal(ledger, sum, 'the ledger and the jobs agree, to the nano-dollar');
  await until(
    async () => Number(await page.locator('#total').getAttribute('data-nano')) === ledger,
    'the ledger’s sum on the page',
  );
  const shown = (await text(page, '#total')).replace(/[$,]/g, '');
  equal(Number(shown).toFixed(2), (Math.round(sum / 1e7) / 100).toFixed(2), 'shown to the cent');
  const rows = await page
    .locator('table.costs tbody td[data-nano]')
    .evaluateAll((cells) => cells.map((c) => Number(c.dataset.nano)));
  equal(
    rows.reduce((a, b) => a + b, 0),
    sum,
    'the rows add up',
  );
  await shot(page, 'costs');
  equal(trouble, [], 'no errors in the console');
  await context.close();
});

test('a budget alert appears without a reload', async ({ page }) => {
  billow('budget', 'set', '0.05', '--project', 'default', '--warn-only');
  const id = submit('--gpus', 8, '--name', 'spender', '--', 'sleep', '300');
  await page.waitForSelector('.attention a:has-text("Budget")', {
    timeout: 90000,
  });
  ok(/\$0\.\d\d of \$0\.05/.test(await text(page, '.attention')), await text(page, '.attention'));
  await page.click('.attention a:has-text("Budget")');
  await page.waitForSelector('table td:has-text("project default")');
  stop(id);
});

test('a sick GPU is drained with its reason, and put back by a person', async ({ page }) => {
  const faults = join(data, 'agent/sim/faults');
  const holder = submit('--gpus', 8, '--name', 'on-a-sick-card', '--', 'sleep', '300');
  await until(() => job(holder).state === 'running', 'it runs on every card');
  writeFileSync(faults, 'xid 5 95\n');
  await page.waitForSelector('.attention a:has-text("GPU 5")', {
    timeout: 30000,
  });
  ok((await text(page, '.attention')).includes('XID 95'), 'with the reason');
  await page.waitForSelector('.tile.sick');
  await page.waitForSelector('.tile.sick .ill:has-text("XID 95")');
  await page.waitForSelector('.tile.sick .who:has-text("on-a-sick-card")');
  await go(page, `/jobs/${holder}`);
  await page.waitForSelector('.sickcards:has-text("XID 95")');
  await page.click('.sickcards a:has-text("GPU 5")');
  await page.waitForSelector('tr.chosen td.bad:has-text("XID 95")');
  stop(holder);
  await go(page, '/');
  await page.click('.attention a:has-text("GPU 5")');
  // A link to a node shows the whole node, not its first GPU.
  await page.waitForSelector('section[aria-label="The whole node"]');
  await page.click('button[aria-label="Undrain GPU 5"]');
  await page.waitForSelector('button[aria-label="Drain GPU 5"]');
  writeFileSync(faults, '');
  const all = submit('--gpus', 8, '--', 'true');
  billow('wait', all);
});

test('a failed job says why, and all logs of an array are searched at once', async ({ page }) => {
  const broken = submit('--', 'sh', '-c', 'exit 3');
  try {
    billow('wait', broken);
  } catch {
    /* with its code */
  }
  await go(page, `/jobs/${broken}`);
  await page.waitForSelector('section.attention:has-text("Why it failed"):has-text("exit code 3")');
  const kept = submit('--gpus', 1, '--suspendable', 'no', '--', 'sleep', '300');
  await go(page, `/jobs/${kept}`);
  await page.waitForSelector('dd:has-text("no: it was submitted with --suspendable no")');
  await page.waitForSelector('button:has-text("Suspend"):disabled');
  stop(kept);
  const array = submit(
    '--array',
    '0-2',
    '--',
    'sh',
    '-c',
    'echo plain; [ $BILLOW_ARRAY_INDEX = 1 ] && echo "the needle $BILLOW_ARRAY_INDEX"; true',
  );
  billow('wait', array);
  await go(page, `/jobs/${array}`);
  await until(
    async () => (await page.locator('.elements tbody tr .state.succeeded').count()) === 3,
    'its elements are listed',
  );
  await page.fill('input[aria-label="Text to find in all logs"]', 'NEEDLE');
  await page.keyboard.press('Enter');
  await page.waitForSelector('small:has-text("1 match in 3 logs")');
  equal(
    await page.locator('.log.found .ll').allInnerTexts(),
    [`${array}.1 the needle 1`],
    'the line and where it stands',
  );
  await page.click('.log.found a');
  await page.waitForSelector('.log .ll:has-text("the needle 1")');
});

test('sign-ins of browsers are apart from tokens that people made', async ({ page }) => {
  billow('token', 'create', 'for-scripts');
  await go(page, '/admin');
  await page.waitForSelector('div[aria-label="Tokens"] td:has-text("for-scripts")');
  equal(
    await page.locator('div[aria-label="Tokens"] td:text-is("dashboard")').count(),
    0,
    'no sign-in among the tokens',
  );
  await page.click('summary:has-text("dashboard session")');
  await page.waitForSelector('div[aria-label="Dashboard sessions"] td:text-is("dashboard")');
});

test('a head that restarts is found again without a reload', async () => {
  const { page, context, trouble } = await open(browser, {
    allow: ['Failed to load resource', 'net::ERR', 'WebSocket'],
  });
  const id = submit(
    '--gpus',
    1,
    '--name',
    'outlives-the-head',
    '--',
    'sh',
    '-c',
    'i=0; while [ $i -lt 600 ]; do i=$((i+1)); echo line $i; sleep 0.2; done',
  );
  await go(page, `/jobs/${id}`);
  await page.waitForSelector('.log .ll:has-text("line 3")');
  await page.evaluate(() => {
    window.notReloaded = true;
  });
  const port = json('status').addresses[0].split(':').pop();
  billow('down');
  await page.waitForSelector('.banner');
  billow('up', '--background', '--listen', `127.0.0.1:${port}`, '--sim', process.env.BILLOW_SIM);
  await page.waitForSelector('.banner', { state: 'detached', timeout: 30000 });
  const last = async () =>
    Number((await page.locator('.log .ll').last().innerText()).split(' ')[1]);
  const before = await last();
  await until(async () => (await last()) > before + 3, 'the log goes on');
  const lines = await page.evaluate(() =>
    document.querySelector('.log').textContent.match(/line \d+/g),
  );
  equal(new Set(lines).size, lines.length, 'no line comes twice');
  ok(await page.evaluate(() => window.notReloaded), 'the page is the same');
  stop(id);
  await page.waitForSelector('.title .state.stopped', { timeout: 20000 });
  ok(
    trouble.every((t) => !t.includes('thrown')),
    `nothing was thrown: ${trouble}`,
  );
  await context.close();
});

test('strict content security, no secret in addresses or storage', async () => {
  const { page, context, trouble, hosts, base } = await open(browser);
  const answer = await page.request.get(base + '/');
  const policy = answer.headers()['content-security-policy'];
  ok(
    policy.includes("default-src 'none'") &&
      policy.includes("script-src 'self'") &&
      !policy.includes('unsafe'),
    policy,
  );
  ok(!page.url().includes('code='), 'the code is gone from the address');
  equal(
    await page.evaluate(() => [localStorage.length, sessionStorage.length, document.cookie]),
    [0, 0, ''],
    'scripts can read nothing',
  );
  const cookies = await context.cookies();
  ok(
    cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === 'Strict',
    JSON.stringify(cookies),
  );
  ok(
    await page.evaluate(() => {
      const s = document.createElement('script');
      s.textContent = 'window.owned = 1';
      document.body.append(s);
      return !window.owned;
    }),
    'an injected script does not run',
  );
  equal([...hosts], [new URL(base).host], 'only the head was asked');
  const html = await answer.text();
  ok(!/https?:\/\//.test(html), 'the page names no other address');
  ok(
    trouble.every((t) => t.includes('Content Security Policy')),
    `${trouble}`,
  );
  await context.close();
});

test('the keyboard goes everywhere', async ({ page }) => {
  const ids = ['alpha', 'beta', 'gamma'].map((n) => submit('--name', n, '--', 'sleep', '300'));
  await page.keyboard.press('?');
  await page.waitForSelector('dialog[open]');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog[open]', { state: 'detached' });
  await page.keyboard.press('g');
  await page.keyboard.press('n');
  await page.waitForURL(/#\/nodes/);
  await page.keyboard.press('/');
  await page.waitForURL(/#\/jobs/);
  await page.waitForFunction(() => document.activeElement?.type === 'search');
  await page.keyboard.type('beta');
  await until(async () => (await page.locator('.vrow').count()) === 1, 'one row');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.waitForURL(new RegExp(`#/jobs/${ids[1]}$`));
  stop(...ids);
});

test('every page is accessible in light, dark and on a phone, and fits its width', async () => {
  const id = submit('--gpus', 1, '--name', 'seen', '--', 'sleep', '300'),
    array = submit('--array', '0-3', '--name', 'four', '--', 'true');
  billow('wait', array);
  for (const options of [{}, { dark: true }, { width: 390, height: 844 }]) {
    const { page, context, trouble } = await open(browser, options);
    for (const path of [
      '/',
      '/jobs',
      `/jobs/${id}`,
      `/jobs/${array}`,
      '/run',
      '/terminal',
      '/endpoints',
      '/nodes',
      `/nodes/${job(id).tasks[0].node}`,
      '/costs',
      '/waste',
      '/advisor',
      '/activity',
      '/admin',
    ]) {
      await go(page, path);
      await page.waitForSelector('main h1');
      await page.waitForTimeout(150);
      await axe(page, `${path} ${JSON.stringify(options)}`);
      await times(page, path);
      const over = await page.evaluate(
        () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
      );
      ok(over <= 0, `${path} is ${over} px too wide at ${JSON.stringify(options)}`);
      // At the width of a small laptop no table is cut: what scrolls sideways is not found.
      if (!options.width) {
        if (path === '/advisor') await page.waitForSelector('table:visible');
        const cut = await page.evaluate(() =>
          [...document.querySelectorAll('.scroll')]
            .filter((s) => s.querySelector('table') && s.scrollWidth > s.clientWidth + 1)
            .map((s) => `${s.getAttribute('aria-label')} by ${s.scrollWidth - s.clientWidth} px`),
        );
        equal(cut, [], `tables of ${path} that are cut`);
      }
    }
    equal(trouble, [], 'no errors in the console');
    await context.close();
  }
  stop(id);
});

test('the bundle is small and the first paint is quick', async () => {
  const { page, context, base } = await open(browser);
  const { gzipSync } = await import('node:zlib');
  let bytes = 0;
  const files = await firstFiles(page, base);
  for (const file of files)
    bytes += gzipSync(await (await page.request.get(base + file)).body()).length;
  ok(bytes <= 120_000, `${bytes} bytes gzipped`);
  // The first script names the chunk of the rare pages, and that one names the terminal's.
  const named = async (file, name) =>
    new RegExp(`${name}-\\w+\\.js`).exec(await (await page.request.get(base + file)).text())?.[0];
  const rare = await named(
    files.find((f) => /app-\w+\.js$/.test(f)),
    'rare',
  );
  const chunk = `assets/${await named(`/assets/${rare}`, 'xterm')}`;
  const loaded = await page.evaluate(() =>
    performance.getEntriesByType('resource').map((r) => r.name),
  );
  ok(
    !loaded.some((name) => /assets\/(xterm|rare)/.test(name)),
    'terminals and rare pages are not part of the first page',
  );
  const answer = await page.request.get(`${base}/${chunk}`);
  ok(answer.headers()['content-type'].startsWith('text/javascript'), 'a chunk is a script');
  ok(answer.headers()['cache-control'].includes('immutable'), 'a chunk is cached by its name');
  equal((await page.request.get(`${base}/assets/none.js`)).status(), 404, 'an unknown chunk');
  const paints = [];
  for (let i = 0; i < 5; i++) {
    await page.reload();
    await page.waitForSelector('.cards');
    paints.push(
      await page.evaluate(
        () => performance.getEntriesByName('first-contentful-paint')[0].startTime,
      ),
    );
  }
  paints.sort((a, b) => a - b);
  console.log(
    `      bundle ${bytes} B gzipped, first paint ${paints.map((p) => p.toFixed(0)).join(' ')} ms`,
  );
  ok(readFileSync(join(root, 'web/package.json'), 'utf8').length > 0, 'there');
  await context.close();
});

process.on('exit', () => {
  void browser.close();
});
await main();
