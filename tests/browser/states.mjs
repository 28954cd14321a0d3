// Accessibility (axe, with contrast) of states that pages have besides the usual one: empty lists,
// open dialogs, errors, selections, forms that are filled in, jobs in every state. Light and dark.
import {
  axe,
  billow,
  equal,
  go,
  json,
  launch,
  main,
  open,
  signInUrl,
  submit,
  test,
  times,
} from './support.mjs';

const browser = await launch();
const stop = (...ids) => billow('stop', '--force', '--wait', ...ids);

// Each state: a name, and what brings the page there.
const empty = [
  ['an empty overview', (page) => go(page, '/')],
  ['an empty list of jobs', (page) => go(page, '/jobs')],
  ['a search without a match', (page) => go(page, '/jobs?show=all&q=nothing-like-this')],
  ['no endpoint', (page) => go(page, '/endpoints')],
  ['no costs', (page) => go(page, '/costs')],
  ['no waste', (page) => go(page, '/waste')],
  ['an unknown page', (page) => go(page, '/no-such-page')],
  ['an unknown job', (page) => go(page, '/jobs/99999')],
  ['an unknown node', (page) => go(page, '/nodes/no-such-node')],
];
const jobs = {};
function startJobs() {
  jobs.running = submit('--gpus', 1, '--name', 'runs', '--', 'sh', '-c', 'echo hi; sleep 900');
  jobs.failed = submit('--name', 'fails', '--', 'sh', '-c', 'echo bad >&2; exit 3');
  jobs.wide = submit('--gpus', 8, '--name', 'waits', '--', 'true');
  jobs.array = submit('--array', '0-3', '--name', 'many', '--', 'sh', '-c', 'exit 1');
  for (const id of [jobs.failed, jobs.array]) {
    try {
      billow('wait', id);
    } catch {
      /* with its code */
    }
  }
}
const busy = [
  ['a running job', (page) => go(page, `/jobs/${jobs.running}`)],
  ['a failed job', (page) => go(page, `/jobs/${jobs.failed}`)],
  ['a waiting job', (page) => go(page, `/jobs/${jobs.wide}`)],
  ['an array with failures', (page) => go(page, `/jobs/${jobs.array}`)],
  ['the overview with failures', (page) => go(page, '/')],
  ['the Gantt chart', (page) => go(page, '/nodes')],
  [
    'a question',
    async (page) => {
      await go(page, `/jobs/${jobs.running}`);
      await page.click('button:has-text("Stop")');
      await page.waitForSelector('dialog[open]');
    },
    'Escape',
  ],
  [
    'the list of keys',
    async (page) => {
      await go(page, '/');
      await page.keyboard.press('?');
      await page.waitForSelector('dialog[open]');
    },
    'Escape',
  ],
  [
    'the palette',
    async (page) => {
      await page.keyboard.press('Control+k');
      await page.waitForSelector('dialog.palette[open]');
      await page.keyboard.type('r');
    },
    'Escape',
  ],
  [
    'selected jobs and a label',
    async (page) => {
      await go(page, '/jobs?show=all');
      await page.waitForSelector('.vrow');
      await page.click('input[aria-label="Select all shown jobs"]');
      await page.click('.selection button:has-text("Label")');
      await page.fill('.selection input[name=labels]', 'wrong');
      await page.click('.selection button:has-text("Apply")');
      await page.waitForSelector('.selection [role=alert]');
    },
  ],
  [
    'all options of a run',
    async (page) => {
      await go(page, '/run');
      await page.waitForSelector('main form');
      await page.fill('main [name=command]', 'echo "unclosed');
      for (const more of await page.locator('main details > summary').all()) await more.click();
    },
  ],
  [
    'a form of an endpoint',
    async (page) => {
      await go(page, '/endpoints');
      await page.click('button:has-text("Deploy an endpoint")');
    },
  ],
  [
    'a target that is refused',
    async (page) => {
      await go(page, '/settings');
      await page.selectOption('select[name=via]', 'ntfy');
      await page.fill('input[name=address]', 'https://ntfy.sh/');
      await page.click('section[aria-label="Add a target"] button:has-text("Add")');
      await page.waitForSelector('section[aria-label="Add a target"] [role=alert]');
    },
  ],
  [
    'a search in a log',
    async (page) => {
      await go(page, `/jobs/${jobs.running}`);
      await page.fill('input[aria-label="Find in the log"]', 'hi');
      await page.waitForSelector('small:has-text("1 match")');
    },
  ],
  ['jobs that are compared', (page) => go(page, `/compare?jobs=${jobs.running},${jobs.failed}`)],
  ['a node', (page) => go(page, `/nodes/${json('nodes').nodes[0].name}`)],
  [
    'a shell',
    async (page) => {
      await go(page, '/terminal');
      await page.waitForSelector('main h1, main button');
    },
  ],
];

async function look(states, dark) {
  const { page, context, trouble } = await open(browser, { dark, allow: ['404', '400'] });
  for (const [name, bring, leave] of states) {
    await bring(page);
    await page.waitForSelector('main h1');
    await page.waitForTimeout(200); // transitions of colours
    await axe(page, `${name}, ${dark ? 'dark' : 'light'}`);
    await times(page, name);
    if (leave) await page.keyboard.press(leave);
  }
  equal(trouble, [], 'no errors in the console');
  await context.close();
}

for (const dark of [false, true]) {
  const theme = dark ? 'dark' : 'light';
  if (!dark) test('nothing is there yet, light', () => look(empty, false));
  if (!dark) test('nothing is there yet, dark', () => look(empty, true));
  test(`pages at work, ${theme}`, async () => {
    if (!jobs.running) startJobs();
    await look(busy, dark);
  });
  test(`the sign-in page, ${theme}`, async () => {
    const context = await browser.newContext({ colorScheme: theme });
    const page = await context.newPage();
    await page.goto(new URL(await signInUrl()).origin);
    await page.waitForSelector('main h1, form');
    await axe(page, `sign-in, ${theme}`);
    await context.close();
  });
}
test('the jobs end', async () => stop(jobs.running, jobs.wide));

process.on('exit', () => {
  void browser.close();
});
await main();
