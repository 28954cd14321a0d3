// A phone at night: the five actions that cannot wait until there is a desk. Read why something
// failed and run it again, stop a job, suspend and resume one, drain a node, give a budget more.
// Each is done by tapping, on a screen of 390 × 844, from a link as a notice has it. What is tapped
// must be large enough for a thumb and nothing may need scrolling sideways.
import {
  billow,
  equal,
  go,
  json,
  launch,
  main,
  ok,
  open,
  submit,
  test,
  until,
} from './support.mjs';

const browser = await launch();
const leastPx = 32;
const job = (id) => json('describe', id);

async function onPhone(run) {
  const { page, context, trouble } = await open(browser, { width: 390, height: 844, touch: true });
  const tap = async (selector) => {
    const target = page.locator(selector).first();
    await target.scrollIntoViewIfNeeded();
    const box = await target.boundingBox();
    ok(box, `${selector} is on the page`);
    ok(box.x >= 0 && box.x + box.width <= 390, `${selector} is cut: ${JSON.stringify(box)}`);
    ok(box.height >= leastPx && box.width >= leastPx, `${selector} is ${box.width}×${box.height}`);
    await target.tap();
  };
  await run(page, tap);
  const over = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  ok(over <= 0, `the page is ${over} px too wide`);
  equal(trouble, [], 'no errors in the console');
  await context.close();
}

test('1 why a job failed, and run it again', () =>
  onPhone(async (page, tap) => {
    const id = submit('--name', 'night-fails', '--', 'sh', '-c', 'echo out of paper; exit 3');
    await until(() => job(id).state === 'failed', 'it fails');
    await page.waitForSelector('.attention li:has-text("night-fails")', { timeout: 45000 });
    await page.locator('.attention li:has-text("night-fails") a').first().tap();
    await page.waitForSelector('.log .ll:has-text("out of paper")');
    await tap('button:has-text("Run again")');
    await page.waitForURL((url) => /#\/jobs\/\d+$/.test(url.href) && !url.href.endsWith(`/${id}`));
  }));

test('2 stop a job', () =>
  onPhone(async (page, tap) => {
    const id = submit('--name', 'night-stop', '--', 'sleep', '600');
    await go(page, `/jobs/${id}`);
    await tap('.actions button:text-is("Stop")');
    await tap('dialog[open] button:text-is("Stop")');
    await until(() => job(id).final, 'it stops');
  }));

test('3 suspend a job and resume it', () =>
  onPhone(async (page, tap) => {
    const id = submit('--name', 'night-rest', '--gpus', '1', '--', 'sleep', '600');
    await until(() => job(id).state === 'running', 'it runs');
    await go(page, `/jobs/${id}`);
    await tap('.actions button:has-text("Suspend")');
    if (await page.locator('dialog[open]').count()) await tap('dialog[open] button >> nth=-1');
    await until(() => job(id).state === 'suspended', 'it is suspended', 60);
    await tap('.actions button:has-text("Resume")');
    await until(() => job(id).state === 'running', 'it goes on', 60);
    billow('stop', '--force', '--wait', id);
  }));

test('4 drain a node and put it back', () =>
  onPhone(async (page, tap) => {
    const { name } = json('nodes').nodes[0];
    await go(page, `/nodes/${name}`);
    await tap('.actions button:text-is("Drain")');
    await tap('dialog[open] button:text-is("Drain")');
    await until(() => json('nodes').nodes[0].state === 'drained', 'it is drained');
    await tap('.actions button:text-is("Undrain")');
    await until(() => json('nodes').nodes[0].state === 'ready', 'it takes jobs again');
  }));

test('5 give a budget more', () =>
  onPhone(async (page, tap) => {
    const project = json('project', 'list').projects[0].name;
    billow('budget', 'set', '10', '--project', project);
    await go(page, '/costs');
    const form = 'form:has(input[name=usd])';
    await page.waitForSelector(form);
    const of = page.locator(`${form} [name=of]`);
    if (await of.count()) await of.selectOption(project).catch(() => of.fill(project));
    await page.fill(`${form} input[name=usd]`, '25');
    await tap(`${form} button`);
    await until(
      () => json('budget', 'show').budgets.some((b) => b.limit_nano_usd === 25e9),
      'the head has the new amount',
    );
  }));

test('nothing on the overview and in the list of jobs is cut on a phone', async () => {
  const { page, context, trouble } = await open(browser, { width: 390, height: 844, touch: true });
  const half = submit('--name', 'half', '--gpus', '0.5', '--', 'sleep', '600');
  const words = 'a reason of many words '.repeat(40);
  submit('--name', 'night-words', '--', 'false');
  await go(page, '/jobs');
  await page.waitForSelector('.vrow');
  const cut = await page
    .locator('.vrow > span:has(a)')
    .first()
    .evaluate((cell) => {
      const link = cell.querySelector('a');
      link.textContent = '140.19';
      return [cell, link].filter((e) => e.scrollWidth > e.clientWidth && e.clientWidth).length;
    });
  equal(cut, 0, 'the number of an element of an array is readable');
  await go(page, '/');
  await page.waitForSelector('.tile .share:text("50 % held, idle")', { timeout: 90_000 });
  const outside = await page
    .locator('.tile .head')
    .evaluateAll((all) => all.filter((h) => h.scrollWidth > h.clientWidth).length);
  equal(outside, 0, 'no tile is wider than its place');
  const tall = await page.locator('.attention li a').evaluateAll((all, text) => {
    all[0].textContent = text;
    return all[0].clientHeight / parseFloat(getComputedStyle(all[0]).lineHeight);
  }, words);
  ok(tall < 3.5, `a long failure takes ${tall} lines`);
  billow('stop', '--force', '--wait', half);
  equal(trouble, [], 'no errors in the console');
  await context.close();
});

test('lists under More are cards on a phone, and tables where they fit', async () => {
  const { page, context, trouble } = await open(browser, { width: 390, height: 844, touch: true });
  const { tmpdir } = await import('node:os');
  billow('volume', 'add', 'night', '--path', tmpdir());
  billow('schedule', 'add', '--name', 'night', '--cron', '0 3 * * *', '--', 'true');
  const cutCells = () =>
    page
      .locator('main table td')
      .evaluateAll((all) =>
        all.filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((c) => c.textContent),
      );
  const asCards = () =>
    page
      .locator('main table td')
      .first()
      .evaluate((cell) => getComputedStyle(cell).display);
  for (const [path, tablet] of [
    ['/volumes', 'grid'], // six columns and a button
    ['/schedules', 'grid'],
    ['/audit', 'table-cell'],
    ['/invoices', 'grid'],
  ]) {
    await page.setViewportSize({ width: 390, height: 844 });
    await go(page, path);
    await page.waitForSelector('main table td');
    equal(await asCards(), 'grid', `${path} on a phone`);
    equal(await cutCells(), [], `nothing of ${path} is cut on a phone`);
    await page.setViewportSize({ width: 820, height: 1180 });
    await until(async () => (await asCards()) === tablet, `${path} on a tablet is ${tablet}`);
    equal(await cutCells(), [], `nothing of ${path} is cut on a tablet`);
  }
  billow('volume', 'rm', 'night');
  equal(trouble, [], 'no errors in the console');
  await context.close();
});

test('tables whose rows have many facts are cards on a phone too', () =>
  onPhone(async (page) => {
    const project = json('project', 'list').projects[0].name;
    billow('budget', 'set', '10', '--project', project);
    const ids = [1, 2].map(() => submit('--name', 'night-pair', '--', 'echo', 'loss=0.5'));
    for (const path of ['/nodes', '/costs', '/admin', `/compare?jobs=${ids}`]) {
      await go(page, path);
      await page.waitForSelector('main .stacks td');
      const cut = await page
        .locator('main .scroll:has(.stacks)')
        .evaluateAll((all) =>
          all.filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.ariaLabel),
        );
      equal(cut, [], `${path} is cut`);
    }
  }));

test('the facts of a job come before its log', () =>
  onPhone(async (page) => {
    const id = submit('--name', 'night-log', '--', 'echo', 'hello');
    await go(page, `/jobs/${id}`);
    await page.waitForSelector('.log .ll:has-text("hello")');
    const y = async (selector) => (await page.locator(selector).first().boundingBox()).y;
    const cost = await y('.facts dt:text-is("Cost")');
    ok((await y('.title .state')) < cost, 'the state first');
    ok(cost < (await y('.facts dt:text-is("Command")')), 'then the cost');
    ok(cost < (await y('.log')), 'then the log');
  }));

test('every page has a way to sign out', () =>
  onPhone(async (page, tap) => {
    await tap('button.menu');
    await page.waitForSelector('text=Sign out');
  }));

process.on('exit', () => {
  void browser.close();
});
await main();
