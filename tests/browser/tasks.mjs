// Ten common tasks, each at most two clicks away from the overview. The clicks are counted.
import { join } from 'node:path';
import { writeFileSync } from 'node:fs';
import {
  billow,
  data,
  equal,
  json,
  launch,
  main,
  ok,
  open,
  shot,
  submit,
  test,
  until,
} from './support.mjs';

const browser = await launch();
const busy = 'while true; do :; done';
const jobs = {
  train: submit('--gpus', 3, '--name', 'train-llama', '--', 'sh', '-c', `echo epoch 1; ${busy}`),
  idle: submit('--gpus', 2, '--name', 'forgotten-notebook', '--', 'sleep', 3000),
  wide: submit('--gpus', 8, '--name', 'big-eval', '--', 'true'),
};
billow('wait', submit('--gpus', 1, '--name', 'short', '--', 'sleep', 1));

// What needs a click is clicked through this, so that the number is known.
async function task(name, clicksMax, run) {
  const { page, context, trouble } = await open(browser);
  let clicks = 0;
  await page.waitForSelector('.tile');
  await run(page, async (selector) => {
    clicks++;
    await page.locator(selector).first().click();
  });
  ok(clicks <= clicksMax, `${name} took ${clicks} clicks`);
  equal(trouble, [], `${name}: no errors`);
  await context.close();
}

test('1 who holds GPU 3', () =>
  task('who holds GPU 3', 0, async (page) => {
    const gpu = json('describe', jobs.idle).tasks[0].gpus[0];
    await until(
      async () =>
        (await page.locator(`.tile[data-gpu="${gpu}"] .who`).innerText()).includes(
          'forgotten-notebook',
        ),
      'its holder on the tile',
    );
    await shot(page, 'overview');
  }));
test('2 why does a job wait', () =>
  task('why does a job wait', 1, async (page, click) => {
    await click('section[aria-label="Waiting longest"] a:has-text("big-eval")');
    await page.waitForSelector('h2:has-text("Why it waits")');
    ok((await page.locator('.attention').innerText()).length > 20, 'a reason');
    await shot(page, 'explain');
  }));
test('3 what did a project spend yesterday, and on what', () =>
  task('what a project spent', 2, async (page, click) => {
    await click('a.card:has-text("Spending now")');
    await page.waitForSelector('table.costs td.on a:has-text("train-llama")', {
      timeout: 30000,
    });
    await click('.tabs a:has-text("Yesterday")');
    await page.waitForSelector('.card:has-text("Yesterday") .big');
    await page.waitForSelector('.empty, table.costs td.on');
  }));
test('4 which jobs waste most', () =>
  task('which jobs waste most', 2, async (page, click) => {
    await click('a.card:has-text("Wasted in 7 days")');
    await page.waitForSelector('table.wasted td a:has-text("forgotten-notebook")', {
      timeout: 90000,
    });
    const list = await page.locator('table.wasted tbody tr').allInnerTexts();
    ok(
      list[0].includes('forgotten-notebook') && /idle now, at \$\d/.test(list[0]),
      `it is the first of the list, with what it wastes: ${list}`,
    );
    ok(!list.some((row) => row.includes('train-llama')), 'a job that works is not on it');
    await shot(page, 'waste');
  }));
test('5 is a GPU sick', () =>
  task('is a GPU sick', 1, async (page, click) => {
    writeFileSync(join(data, 'agent/sim/faults'), 'ecc 7 1\n');
    await page.waitForSelector('.attention li.grave:has-text("GPU 7")', {
      timeout: 30000,
    });
    await click('.attention a:has-text("GPU 7")');
    await page.waitForSelector('td.bad:has-text("uncorrected memory error")');
  }));
test('6 what would 70B at fp8 cost', () =>
  task('what would 70B at fp8 cost', 2, async (page, click) => {
    await click('nav a:has-text("Advisor")');
    await page.waitForSelector('main h1:has-text("Advisor")');
    await until(
      async () =>
        /70B at fp8.*costs \$[\d,]+ per month/.test(
          await page.locator('.finding.best').innerText(),
        ),
      'the price of 70B at fp8',
    );
    const first = await page.evaluate(
      async () =>
        (
          await (
            await fetch('/v1/advise', {
              method: 'POST',
              headers: {
                'X-Billow-Request': '1',
                'Content-Type': 'application/json',
              },
              body: JSON.stringify({
                model: '70B',
                weights: 'fp8',
                input_tokens: 1024,
                output_tokens: 256,
                requests_per_s: 2,
              }),
            })
          ).json()
        ).options[0],
    );
    ok(
      (await page.locator('.finding.best').innerText()).includes(
        `$${first.usd_month.toLocaleString('en-US')}`,
      ),
      'the price the head gives',
    );
    ok((await page.locator('.advice-curve circle').count()) >= 3, 'the curve of price and speed');
    await shot(page, 'advisor');
  }));
test('7 stop the idle ones, taken back', () =>
  task('stop the idle ones and think again', 3, async (page, click) => {
    await until(
      async () => /1 job/.test(await page.locator('a.card:has-text("Idle right now")').innerText()),
      'an idle job on the card',
      90,
    );
    await click('a.card:has-text("Idle right now")');
    // The jobs that will be stopped are the ones listed.
    await page.waitForSelector('.vrow:has-text("forgotten-notebook")');
    await click('button:has-text("Stop this idle job")');
    await page.waitForSelector('.notices:has-text("stopped in") button:has-text("Undo")');
    equal(json('describe', jobs.idle).state, 'running', 'there is time to take it back');
    await click('.notices button:has-text("Undo")');
    await page.waitForSelector('.notices:has-text("Undone")');
    await page.waitForTimeout(8000); // longer than the time to undo: an undone stop never happens
    equal(json('describe', jobs.idle).state, 'running', 'taken back');
  }));
test('7 stop the idle ones', () =>
  task('stop the idle ones', 2, async (page, click) => {
    await until(
      async () => /1 job/.test(await page.locator('a.card:has-text("Idle right now")').innerText()),
      'an idle job on the card',
      90,
    );
    await click('a.card:has-text("Idle right now")');
    await click('button:has-text("Stop this idle job")');
    await until(() => json('describe', jobs.idle).state === 'stopped', 'the idle job stopped', 40);
  }));
test('8 watch a log', () =>
  task('watch a log', 1, async (page, click) => {
    await click('.tile .who:has-text("train-llama")');
    await page.waitForSelector('.log .ll:has-text("epoch 1")');
  }));
test('9 next week’s reservations', () =>
  task('reservations', 1, async (page, click) => {
    billow('reserve', '--gpus', 1, '--from', '+50h', '--for', '30h', '--name', 'sweep');
    await click('nav a:has-text("Nodes")');
    await page.waitForSelector('svg.calendar .bar.waiting');
    await page.waitForSelector('td:has-text("sweep")');
    await shot(page, 'reservations');
  }));
test('10 what changed since yesterday', () =>
  task('what changed', 1, async (page, click) => {
    await click('a:has-text("Changes since yesterday")');
    await page.waitForSelector('.activity li');
    ok(
      (await page.locator('.activity').innerText()).includes('taken out of service'),
      'the drained GPU is told',
    );
    await shot(page, 'activity');
  }));

process.on('exit', () => {
  void browser.close();
});
await main();
