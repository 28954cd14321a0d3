// The list of jobs, a job's log and the form that runs one: what people do with them all day.
import { join } from 'node:path';
import { writeFileSync } from 'node:fs';
import {
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
  signInUrl,
  submit,
  test,
  until,
} from './support.mjs';

const browser = await launch();
const job = (id) => json('describe', id);
const ask = (page, method, path, body) =>
  page.evaluate(
    async ([m, p, b]) => {
      const answer = await fetch(p, {
        method: m,
        headers: { 'X-Billow-Request': '1', 'Content-Type': 'application/json' },
        body: b === undefined ? undefined : JSON.stringify(b),
      });
      return { status: answer.status, body: await answer.json().catch(() => null) };
    },
    [method, path, body],
  );
const names = (page) => page.locator('.vrow .name').allInnerTexts();
const printer = (text) => ['--', 'sh', '-c', text];
async function stopped(...ids) {
  for (const id of ids) billow('stop', '--force', '--wait', id);
}
// Ended jobs without running any: they wait behind a job that holds all GPUs, and are stopped.
async function endedJobs(page, count, prefix) {
  const holder = submit('--gpus', 8, '--name', 'holder', '--', 'sleep', '600');
  for (let from = 0; from < count; from += 20)
    await page.evaluate(
      async ([first, last, name]) => {
        const post = (path, body) =>
          fetch(path, {
            method: 'POST',
            headers: { 'X-Billow-Request': '1', 'Content-Type': 'application/json' },
            body: JSON.stringify(body),
          }).then((r) => r.json());
        for (let i = first; i < last; i++) {
          const spec = { argv: ['true'], name: `${name}-${i}`, labels: { nth: `n${i}` } };
          spec.resources = { gpus: 8, share: { milli: 1000 } };
          const { id } = await post('/v1/jobs', { spec });
          await post(`/v1/jobs/${id}/stop`, {});
        }
      },
      [from, Math.min(count, from + 20), prefix],
    );
  return holder;
}

test('every job that ever ran is listed, searched and sorted', async ({ page }) => {
  const holder = await endedJobs(page, 130, 'sweep');
  await page.reload();
  await go(page, '/jobs?show=ended');
  await page.waitForSelector('.vrow');
  const count = async () => Number((await page.locator('h1 small').innerText()).match(/[\d,]+/)[0]);
  await until(async () => (await count()) >= 100, 'the first page');
  await until(async () => {
    await page.locator('.vbody').evaluate((e) => e.scrollTo(0, e.scrollHeight));
    return (await count()) >= 130;
  }, 'older ones come with scrolling');
  await page.fill('main input[type=search]', 'sweep-3');
  await until(async () => (await names(page)).includes('sweep-3'), 'an old job by its name');
  ok(/q=sweep-3/.test(page.url()), 'the search is in the address');
  await page.reload();
  await until(async () => (await names(page)).includes('sweep-3'), 'also after a reload');
  await page.fill('main input[type=search]', 'label:nth=n7');
  await until(async () => (await names(page)).join() === 'sweep-7', 'by a label');
  await page.fill('main input[type=search]', 'sweep');
  await page.click('.vhead a:has-text("Name")');
  await until(async () => (await names(page))[0] === 'sweep-0', 'sorted by name');
  await page.click('.vhead a:has-text("Name")');
  await until(async () => (await names(page))[0] === 'sweep-99', 'and the other way round');
  ok(/sort=-name/.test(page.url()), 'the order is in the address');
  await stopped(holder);
});

test('filters stay in the address, and Back returns to the row', async ({ page }) => {
  const holder = await endedJobs(page, 60, 'row');
  await go(page, '/jobs?show=ended&project=default');
  await page.waitForSelector('.vrow');
  await page.click('.tabs a:has-text("Failed")');
  ok(/project=default/.test(page.url()), 'another tab keeps the project');
  await page.goBack();
  await page.waitForSelector('.vrow');
  const position = () => page.locator('.vbody').evaluate((e) => Math.round(e.scrollTop));
  await until(async () => {
    await page.locator('.vbody').evaluate((e) => e.scrollTo(0, 1500));
    return (await position()) === 1500;
  }, 'enough rows');
  await page.waitForSelector('.vrow[aria-rowindex="45"]');
  await page.locator('.vrow[aria-rowindex="45"] .name a').click();
  await page.waitForURL(/#\/jobs\/\d+$/);
  await page.goBack();
  await page.waitForSelector('.vrow');
  await until(async () => (await position()) === 1500, 'where the list was');
  await page.click('text=Save this view');
  await page.fill('input[aria-label="Name of the view"]', 'done here');
  await page.keyboard.press('Enter');
  await page.reload();
  await page.click('.views a:has-text("done here")');
  ok(/project=default/.test(page.url()), 'a saved view');
  await stopped(holder);
});

test('no column is cut at any width', async () => {
  const { page, context } = await open(browser);
  const id = submit('--gpus', 1, '--name', 'a-rather-long-name-of-a-job', '--', 'sleep', '300');
  await go(page, '/jobs');
  await page.waitForSelector('.vrow');
  for (let width = 360; width <= 1460; width += 50) {
    await page.setViewportSize({ width, height: 800 });
    const cut = await page.evaluate(() => {
      const table = document.querySelector('.vtable');
      const right = table.getBoundingClientRect().right;
      return [...document.querySelectorAll('.vhead > span')]
        .filter((s) => s.offsetWidth && s.getBoundingClientRect().right > right + 0.5)
        .map((s) => s.textContent);
    });
    equal(cut, [], `columns beyond the edge at ${width} px`);
  }
  billow('stop', '--force', '--wait', id);
  await context.close();
});

test('several jobs are stopped at once, with one undo', async ({ page }) => {
  const ids = ['one', 'two', 'three'].map((n) => submit('--name', `pick-${n}`, '--', 'sleep', 600));
  await go(page, '/jobs?q=pick');
  await until(async () => (await page.locator('.vrow').count()) === 3, 'the three');
  await page.keyboard.press('Escape');
  await page.keyboard.press('j');
  await page.keyboard.press('x');
  await page.waitForSelector('.selection:has-text("1 selected")');
  await page.click('input[aria-label="Select all shown jobs"]');
  await page.waitForSelector('.selection:has-text("3 selected")');
  await shot(page, 'selection');
  await page.click('.selection button:has-text("Stop")');
  await page.click('.notices button:has-text("Undo")');
  await page.waitForSelector('.notices:has-text("Undone")');
  await page.waitForTimeout(7500); // longer than the time to undo: an undone stop never happens
  ok(
    ids.every((id) => job(id).state === 'running'),
    'they run on',
  );
  await page.click('input[aria-label="Select all shown jobs"]');
  await page.click('.selection button:has-text("Stop")');
  await until(() => ids.every((id) => job(id).state === 'stopped'), 'then they are stopped');
});

test('several jobs are labelled at once, live and ended ones, with one undo', async ({ page }) => {
  const live = submit('--name', 'tag-live', '--', 'sleep', 600),
    ended = submit('--name', 'tag-ended', '--', 'true');
  billow('wait', ended);
  await go(page, '/jobs?show=all&q=tag-');
  await until(async () => (await page.locator('.vrow').count()) === 2, 'both');
  const label = async (text) => {
    await page.click('input[aria-label="Select all shown jobs"]');
    await page.waitForSelector('.selection:has-text("2 selected")');
    await page.click('.selection button:has-text("Label")');
    await page.fill('.selection input[name=labels]', text);
    await page.click('.selection button:has-text("Apply")');
  };
  await label('not a label');
  await page.waitForSelector('.selection [role=alert]');
  await page.click('.selection button:has-text("Clear")');
  await label('stage=draft');
  await page.click('.notices button:has-text("Undo")');
  await page.waitForSelector('.notices:has-text("Undone")');
  await label('stage=paper');
  await page.waitForSelector('.notices:has-text("2 jobs labelled")');
  equal(job(live).labels, { stage: 'paper' }, 'the live one');
  equal(job(ended).labels, { stage: 'paper' }, 'the ended one');
  await go(page, '/jobs?show=all&q=label:stage=paper');
  await until(async () => (await page.locator('.vrow').count()) === 2, 'both are found by it');
  billow('stop', '--force', '--wait', live);
});

test('a long log shows its end and follows it', async ({ page }) => {
  const id = submit(
    '--name',
    'talks',
    '--',
    'sh',
    '-c',
    'seq -f "early %g" 1 400; i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo late $i; sleep 0.2; done',
  );
  await go(page, `/jobs/${id}`);
  // The text of the lines that are in view, not only in the document.
  const inView = () =>
    page.evaluate(() => {
      const box = document.querySelector('.log');
      const at = box?.getBoundingClientRect();
      return [...(box?.querySelectorAll('.ll') ?? [])]
        .filter((l) => {
          const r = l.getBoundingClientRect();
          return r.top >= at.top - 1 && r.bottom <= at.bottom + 1;
        })
        .map((l) => l.textContent.trim());
    });
  const late = (lines) => Number(/late (\d+)/.exec(lines.at(-1) ?? '')?.[1] ?? 0);
  const first = await until(async () => late(await inView()), 'the end of the log in view');
  await until(async () => late(await inView()) > first + 3, 'the lines that follow in view');
  equal(
    await page.getAttribute('.tabs button:has-text("Follow")', 'aria-pressed'),
    'true',
    'following',
  );
  // Who scrolls up stays there.
  await page.evaluate(() => {
    document.querySelector('.log').scrollTop = 0;
  });
  await until(async () => (await inView()).includes('early 3'), 'the beginning in view');
  await page.waitForSelector('.tabs button[aria-pressed="false"]:has-text("Follow")');
  ok((await inView()).includes('early 3'), 'it stays');
  billow('stop', '--force', '--wait', id);
});

test('twelve tabs of one browser work at once', async ({ page, context }) => {
  const id = submit(
    '--name',
    'watched',
    ...printer('i=0; while true; do i=$((i+1)); echo line $i; sleep 0.2; done'),
  );
  const origin = new URL(page.url()).origin;
  const tabs = [page];
  for (let i = 1; i < 12; i++) tabs.push(await context.newPage());
  for (const tab of tabs) await tab.goto(`${origin}/#/jobs/${id}`);
  for (const tab of tabs)
    await tab.waitForSelector('.log .ll:has-text("line")', { timeout: 90000 });
  for (const tab of tabs) equal((await ask(tab, 'GET', '/v1/status')).status, 200, 'a request');
  await tabs[11].click('button:has-text("Stop")');
  await tabs[11].click('dialog button:has-text("Stop")');
  for (const tab of tabs) await tab.waitForSelector('.title .state.stopped', { timeout: 90000 });
});

test('a long log opens at once, is searched, and goes to a line or time', async ({ page }) => {
  const id = submit(
    ...printer('seq -f "line %g" 1 60000; echo "a needle 31"; seq -f "more %g" 1 60000'),
  );
  billow('wait', id);
  await go(page, `/jobs/${id}`);
  await page.waitForSelector('.log .ll:has-text("more 60000")');
  ok((await page.locator('.log .ll').count()) < 200, 'only lines in view are in the document');
  await page.waitForSelector('small:has-text("120,001 lines")');
  await page.fill('input[aria-label="Find in the log"]', 'NEEDLE');
  await page.waitForSelector('small:has-text("1 match")');
  equal(await page.locator('.log .ll').allInnerTexts(), ['a needle 31'], 'the line');
  await page.locator('.log .number').click();
  await page.waitForSelector('.log .ll.target:has-text("a needle 31")');
  await page.waitForSelector('.log .ll:has-text("line 60000")');
  await page.fill('input[aria-label="Go to a line or time"]', '12345');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.log .ll.target:text-is("line 12345")');
  await page.fill('input[aria-label="Go to a line or time"]', '1h ago');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.log .ll.target:text-is("line 1")');
  await page.click('button:has-text("Times")');
  ok(/^\d\d:\d\d:\d\d/.test(await page.locator('.log .ll').first().innerText()), 'with times');
  await page.click('button:has-text("Wrap")');
  await page.waitForSelector('.log.wrap .ll:has-text("line 1")');
  await page.click('button:has-text("Follow")');
  await page.waitForSelector('.log .ll:has-text("more 60000")');
  await page.click('button:has-text("Regex")');
  await page.fill('input[aria-label="Find in the log"]', '^(line|more) 77$');
  await page.waitForSelector('small:has-text("2 matches")');
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.click('a:has-text("Download")'),
  ]);
  equal(download.suggestedFilename(), `job-${id}.log`, 'a file');
});

test('a progress bar is shown while it moves', async ({ page }) => {
  const go_on = join(data, 'progress');
  const id = submit(
    ...printer(
      `echo starting; printf '\\r 15%%|###'; while [ ! -e ${go_on} ]; do sleep 0.1; done; ` +
        `printf '\\r 99%%|#########\\n'`,
    ),
  );
  await go(page, `/jobs/${id}`);
  await page.waitForSelector('.log .ll:has-text("15%|###")');
  writeFileSync(go_on, '');
  await page.waitForSelector('.log .ll:has-text("99%|#########")');
  equal(await page.locator('.log .ll').count(), 2, 'the bar is one line');
});

test('a group shows its roles, their members, places and costs', async ({ page }) => {
  const path = join(data, 'group.toml');
  writeFileSync(
    path,
    '[job]\nname = "rl"\n[[role]]\nname = "trainer"\ngpus = 2\n' +
      'command = "echo I train; sleep 600"\n' +
      '[[role]]\nname = "rollout"\ncount = 2\ngpus = 0.5\nservice = true\n' +
      'command = "echo I am $BILLOW_ROLE.$BILLOW_ROLE_INDEX; sleep 600"\n',
  );
  const id = Number(billow('submit', '-q', path).trim());
  await go(page, `/jobs/${id}`);
  const rows = page.locator('section[aria-label="Roles"] tbody tr');
  await until(async () => (await rows.count()) === 3, 'three members');
  const cells = async (row) => (await rows.nth(row).innerText()).replace(/\s+/g, ' ');
  await until(async () => /trainer 2 GPUs .* running /.test(await cells(0)), 'the trainer runs');
  ok(/rollout × 2 service each 0\.5 GPU \$\d.* rollout\.0 running /.test(await cells(1)));
  ok(/^rollout\.1 running .*\(GPU \d\) Restart$/.test(await cells(2)), await cells(2));
  await until(async () => {
    const charged = json('describe', id).roles.reduce((sum, r) => sum + r.cost_nano_usd, 0);
    return charged > 0 && !/\$0\.0+ /.test(await cells(0));
  }, 'what the role has cost');
  await page.selectOption('.logwrap select', { label: 'rollout.1' });
  await page.waitForSelector('.log:has-text("I am rollout.1")');
  const before = json('describe', id).tasks.find((t) => t.role === 'rollout.1').id;
  await page.click('button[aria-label="Restart rollout.1"]');
  await page.click('dialog button:has-text("Restart")');
  await until(() => {
    const now = json('describe', id).tasks;
    const again = now.find((t) => t.role === 'rollout.1');
    return again && again.id !== before && again.state === 'running' && now.length === 3;
  }, 'one member was restarted alone');
  await stopped(id);
});

test('an array costs what its elements do', async ({ page }) => {
  const id = submit('--name', 'paid', '--array', '0-1', '--gpus', 1, '--', 'sleep', '300');
  await go(page, `/jobs/${id}`);
  const cost = page.locator('.facts dt:text-is("Cost") + dd');
  await until(async () => /\$0\.0*[1-9]/.test(await cost.innerText()), 'its cost while it runs');
  billow('stop', '--force', '--wait', id);
});

test('the form runs what it says', async ({ page }) => {
  await go(page, '/run');
  const run = page.locator('main form button.full');
  const alert = page.locator('main form [role=alert]');
  await page.fill('input[name=command]', 'true');
  await page.fill('input[name=gpus]', '1.5');
  ok(/only a single GPU can be divided/.test(await alert.innerText()), 'no 1.5 GPUs');
  ok(await run.isDisabled(), 'it cannot be run');
  await page.fill('input[name=gpus]', '1');
  await page.waitForSelector('.price:has-text("Built-in price as of")');
  billow('price', 'set', 'gpu:H100', '--charge', '3');
  await go(page, '/prices');
  await page.waitForSelector('tr:has-text("gpu:H100"):has-text("set here")');
  await go(page, '/run');
  await page.waitForSelector('.price:has-text("$3.00 per hour.")');
  equal(await page.locator('.price:has-text("Built-in")').count(), 0, 'it is their own price');
  billow('price', 'rm', 'gpu:H100');
  await go(page, '/prices');
  await page.waitForSelector('tr:has-text("gpu:H100"):has-text("built-in")');
  equal(await page.locator('button:has-text("Delete")').count(), 0, 'nothing to delete');
  await go(page, '/run');
  await page.fill('input[name=command]', 'true');
  await page.fill('input[name=gpus]', '-1');
  ok(/must not be negative/.test(await alert.innerText()), 'no negative ones');
  equal(await page.locator('.price').count(), 0, 'and no negative price');
  await page.fill('input[name=gpus]', '0');
  await page.fill('input[name=command]', 'echo "unclosed');
  ok(/quote is not closed/.test(await alert.innerText()), 'no unclosed quote');
  await page.fill('input[name=command]', 'cd / && echo $((6*7)) | tr 4 5');
  await page.waitForSelector('#shell:has-text("sh -c")');
  ok(
    (await page.locator('.line code').innerText()).includes(`-- sh -c 'cd / && echo`),
    'the command line says so too',
  );
  await run.click();
  await page.waitForSelector('.log .ll:text-is("52")', { timeout: 20000 });
  // Whether it can start is what the head says: GPUs that are free but reserved do not count.
  await go(page, '/run');
  await page.fill('input[name=command]', 'sleep 1');
  await page.fill('input[name=gpus]', '8');
  await page.waitForSelector('#starts:has-text("can start now")');
  const reserved = json('reserve', '--gpus', 2, '--for', '1h', '--name', 'kept-free');
  await page.fill('input[name=command]', 'sleep 2');
  await page.waitForSelector('#starts:has-text("will wait")');
  billow('reserve', 'cancel', reserved.id);
  await page.click('summary:has-text("More options")');
  await page.fill('label:has-text("--retries") input:not([type=checkbox])', '2');
  for (const [form, text] of [
    ['Python', 'billow.submit(["sleep", "2"], gpus=8, retries=2)'],
    ['Job file', 'retries = 2'],
    ['Command line', '--retries 2'],
  ]) {
    await page.click(`.elsewhere button:has-text("${form}")`);
    ok((await page.locator('.line code').innerText()).includes(text), `${form}: ${text}`);
  }
});

test('a form is kept, shared as a link, and removed again', async ({ page, context }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await go(page, '/run');
  await page.fill('input[name=command]', 'sleep 3 && echo "a b"');
  await page.fill('input[name=gpus]', '0.5');
  await page.fill('input[name=name]', 'sharable');
  await page.click('summary:has-text("More options")');
  await page.fill('label:has-text("--retries") input:not([type=checkbox])', '3');
  const line = await page.locator('.elsewhere .line code').innerText();
  await page.click('button:has-text("Copy a link to this form")');
  await page.waitForSelector('.notices:has-text("Link copied: it opens this form")');
  const link = await page.evaluate(() => navigator.clipboard.readText());
  await page.click('button:has-text("Keep as a preset")');
  await go(page, '/jobs');
  await page.goto(link);
  await until(
    async () => (await page.locator('.elsewhere .line code').innerText()) === line,
    'another one who opens the link has the same job',
  );
  await go(page, '/run');
  const [preset, command] = await Promise.all(
    ['.presets select', 'input[name=command]'].map((at) => page.locator(at).boundingBox()),
  );
  ok(preset.y < command.y, 'a preset is chosen above the fields');
  await page.selectOption('.presets select', 'sharable');
  equal(await page.locator('.elsewhere .line code').innerText(), line, 'and so has the preset');
  await page.click('button:has-text("Remove the preset")');
  equal(await page.locator('.presets select').count(), 0, 'it is gone');
  await page.click('.notices button:has-text("Undo")');
  await page.waitForSelector('.presets option:has-text("sharable")', { state: 'attached' });
});

test('a project keeps presets that all its members can choose', async ({ page, context }) => {
  await go(page, '/run');
  await page.fill('input[name=command]', 'python train.py --size "a b"');
  await page.fill('input[name=gpus]', '0.5');
  await page.fill('input[name=name]', 'team preset');
  await page.click('summary:has-text("More options")');
  await page.fill('label:has-text("--retries") input:not([type=checkbox])', '2');
  const line = await page.locator('.elsewhere .line code').innerText();
  await page.click('button:has-text("Share as a preset of")');
  await page.waitForSelector('.notices:has-text("kept for all members")');
  // Another browser, which remembers nothing.
  const { page: other, context: elsewhere } = await open(context.browser());
  await go(other, '/run');
  await other.waitForSelector('.presets optgroup option', { state: 'attached' });
  const { user } = json('status').you ?? { user: 'root' };
  await other.selectOption('.presets select', { label: `team preset (by ${user})` });
  equal(await other.locator('.elsewhere .line code').innerText(), line, 'the same job');
  await other.click('button:has-text("Remove the preset")');
  await until(async () => !(await other.locator('.presets select').count()), 'it is gone');
  await other.click('.notices button:has-text("Undo")');
  await other.waitForSelector('.presets option:has-text("team preset")', { state: 'attached' });
  await elsewhere.close();
});

test('a changed job keeps what the form does not show', async ({ page }) => {
  const id = submit(
    '--name',
    'original',
    '--time',
    '20h',
    '--retries',
    '2',
    '--label',
    'team=vision',
    '--env-var',
    'COLOUR=blue',
    ...printer('echo colour $COLOUR; sleep 300'),
  );
  await until(() => job(id).state === 'running', 'it runs');
  await go(page, `/jobs/${id}`);
  await page.click('a:has-text("Change and run")');
  await until(
    async () => (await page.inputValue('input[name=name]')) === 'original',
    'filled in from the job',
  );
  const kept = await page.locator('#kept').innerText();
  ok(/--retries 2/.test(kept) && /--label team=vision/.test(kept), kept);
  equal(await page.inputValue('input[name=hours]'), '20', 'the time limit');
  await page.fill('input[name=name]', 'copy');
  await page.click('main form button.full');
  await page.waitForURL((url) => /#\/jobs\/\d+$/.test(url.href) && !url.href.endsWith(`/${id}`));
  await page.waitForSelector('.log .ll:text-is("colour blue")', { timeout: 20000 });
  const made = Number(page.url().split('/').pop());
  const copy = job(made);
  equal(
    [copy.name, copy.retries, copy.labels, copy.time_limit_s],
    ['copy', 2, { team: 'vision' }, 72000],
    'the rest is as it was',
  );
  await stopped(id, made);
});

test('those who may only look see no buttons', async () => {
  const { page, context } = await open(browser);
  billow('user', 'create', 'vera');
  billow('project', 'member', 'default', 'vera', '--role', 'viewer');
  const token = json('token', 'create', 'of-vera', '--user', 'vera').token;
  const id = submit('--name', 'not-hers', '--', 'sleep', '300');
  const origin = new URL(await signInUrl()).origin;
  await context.clearCookies();
  await page.goto(`${origin}/#/jobs/${id}`);
  await page.reload();
  await page.fill('input[name=token]', token);
  await page.click('button:has-text("Sign in")');
  await page.waitForSelector('h1:has-text("not-hers")');
  equal(await page.locator('.actions button, .actions a').count(), 0, 'nothing to press');
  await page.setViewportSize({ width: 390, height: 844 });
  await page.click('button.menu');
  await page.click('nav button:has-text("Sign out")');
  await page.waitForSelector('h1:has-text("Sign in to Billow")');
  await stopped(id);
  await context.close();
});

process.on('exit', () => {
  void browser.close();
});
await main();
