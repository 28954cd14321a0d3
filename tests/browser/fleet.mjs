// A fleet too large for tiles: every GPU is a square whose colour shows its state; pointing at it
// shows its job.
import { join } from 'node:path';
import { writeFileSync } from 'node:fs';
import {
  axe,
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
const colour = (page, index) =>
  page
    .locator('.cells a')
    .nth(index)
    .evaluate((el) => getComputedStyle(el).backgroundColor);

for (const dark of [false, true]) {
  test(`squares are coloured by what the GPU does, ${dark ? 'dark' : 'light'}`, async () => {
    const idle = submit('--gpus', 20, '--name', 'forgotten', '--', 'sleep', '600');
    const busy = submit(
      '--gpus',
      8,
      '--name',
      'trains',
      '--',
      'sh',
      '-c',
      'while true; do :; done',
    );
    writeFileSync(join(data, 'agent/sim/faults'), 'ecc 63 1\n');
    const { page, context, trouble } = await open(browser, { dark });
    equal(await page.locator('.cells a').count(), 64, 'a square for every GPU');
    const held = json('describe', idle).tasks[0].gpus[0],
      works = json('describe', busy).tasks[0].gpus[0];
    const free = [...Array(63).keys()].find(
      (i) =>
        ![
          ...json('describe', idle).tasks[0].gpus,
          ...json('describe', busy).tasks[0].gpus,
        ].includes(i),
    );
    const level = (index) => page.locator('.cells a').nth(index).getAttribute('data-l');
    await until(
      async () =>
        (await level(held)) === '0' &&
        Number(await level(works)) >= 3 &&
        (await level(63)) === 'x' &&
        (await level(free)) === 'f',
      'each GPU known for what it is',
      60,
    );
    const seen = await Promise.all([held, works, 63, free].map((i) => colour(page, i)));
    equal(new Set(seen).size, 4, `idle, busy, sick and free look different: ${seen}`);
    await page.locator('.cells a').nth(works).hover();
    await page.waitForSelector('.hover:has-text("trains")');
    ok((await page.locator('.hover').innerText()).includes(`GPU ${works}`), 'and which it is');
    await shot(page, dark ? 'fleet-dark' : 'fleet');
    await axe(page, 'the fleet');
    await page.locator('.cells a').nth(held).click();
    await page.waitForURL(new RegExp(`#/jobs/${idle}$`));
    billow('stop', '--force', '--wait', idle, busy);
    equal(trouble, [], 'no errors in the console');
    await context.close();
  });
}

process.on('exit', () => {
  void browser.close();
});
await main();
