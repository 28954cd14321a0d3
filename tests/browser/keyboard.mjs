// The commonest tasks with the keyboard alone: nothing here clicks. Each stop of the focus on the
// way must be visible.
import { billow, equal, json, launch, main, ok, submit, test, until } from './support.mjs';

const browser = await launch();
const stop = (...ids) => billow('stop', '--force', '--wait', ...ids);
const press = async (page, ...keys) => {
  for (const key of keys) await page.keyboard.press(key);
};

// Presses Tab until the focus is on an element like this one.
async function tabTo(page, css, text = '', key = 'Tab', most = 120) {
  for (let i = 0; i < most; i++) {
    const at = await page.evaluate(
      ([selector, words]) => {
        const e = document.activeElement;
        const style = getComputedStyle(e);
        return {
          found: e.matches(selector) && (e.textContent ?? '').includes(words),
          what: `${e.tagName} ${e.className} ${(e.textContent ?? '').slice(0, 30)}`,
          visible:
            e === document.body ||
            e.id === 'main' ||
            style.outlineStyle !== 'none' ||
            style.boxShadow !== 'none' ||
            !!e.closest('dialog'),
        };
      },
      [css, text],
    );
    ok(at.visible, `the focus on ${at.what} is not visible`);
    if (at.found) return;
    await page.keyboard.press(key);
  }
  throw new Error(`${css} ${text} is not reached by Tab`);
}
async function palette(page, words) {
  await press(page, 'Control+k');
  await page.waitForSelector('dialog.palette[open]');
  await page.keyboard.type(words);
  await page.waitForSelector('.palette li');
  await page.keyboard.press('Enter');
}

test('1 find a job and open it', async ({ page }) => {
  const id = submit('--name', 'kb-find', '--', 'sleep', '600');
  await press(page, '/');
  await page.waitForFunction(() => document.activeElement?.type === 'search');
  await page.keyboard.type('kb-find');
  await until(async () => (await page.locator('.vrow').count()) === 1, 'one row');
  await press(page, 'ArrowDown', 'Enter');
  await page.waitForURL(new RegExp(`#/jobs/${id}$`));
  stop(id);
});

test('2 find a word in a log', async ({ page }) => {
  const id = submit('--name', 'kb-log', '--', 'sh', '-c', 'echo a needle; sleep 600');
  await palette(page, 'kb-log');
  await page.waitForSelector('.log .ll:has-text("needle")');
  await tabTo(page, 'input[aria-label="Find in the log"]');
  await page.keyboard.type('needle');
  await page.waitForSelector('small:has-text("1 match")');
  stop(id);
});

test('3 stop a job', async ({ page }) => {
  const id = submit('--name', 'kb-stop', '--', 'sleep', '600');
  await palette(page, 'kb-stop');
  await page.waitForSelector('button:has-text("Stop")');
  await tabTo(page, 'button', 'Stop');
  await press(page, 'Enter');
  await page.waitForSelector('dialog[open]');
  await tabTo(page, 'dialog button', 'Stop');
  await press(page, 'Enter');
  await until(() => json('describe', id).state === 'stopped', 'it is stopped');
});

test('4 suspend a job and resume it', async ({ page }) => {
  const id = submit('--name', 'kb-sleep', '--', 'sleep', '600');
  await palette(page, 'kb-sleep');
  await page.waitForSelector('button:has-text("Suspend")');
  await tabTo(page, 'button', 'Suspend');
  await press(page, 'Enter');
  await until(() => json('describe', id).state === 'suspended', 'it is suspended', 60);
  await page.waitForSelector('button:has-text("Resume")');
  await tabTo(page, 'button', 'Resume');
  await press(page, 'Enter');
  await until(() => json('describe', id).state === 'running', 'it runs again', 60);
  stop(id);
});

test('5 run a job', async ({ page }) => {
  await press(page, 'g', 'r');
  await page.waitForURL(/#\/run/);
  await page.waitForSelector('main form');
  await tabTo(page, 'main [name=command]');
  await page.keyboard.type('echo run by keys');
  await tabTo(page, 'main button', 'Run');
  await press(page, 'Enter');
  await page.waitForURL(/#\/jobs\/\d+/);
  await page.waitForSelector('.log .ll:has-text("run by keys")');
});

test('6 select two jobs and label them', async ({ page }) => {
  const ids = ['a', 'b'].map((n) => submit('--name', `kb-pick-${n}`, '--', 'sleep', '600'));
  await press(page, '/');
  await page.waitForFunction(() => document.activeElement?.type === 'search');
  await page.keyboard.type('kb-pick');
  await until(async () => (await page.locator('.vrow').count()) === 2, 'two rows');
  await press(page, 'Escape', 'j', 'x', 'j', 'x');
  await page.waitForSelector('.selection:has-text("2 selected")');
  await tabTo(page, '.selection button', 'Label', 'Shift+Tab');
  await press(page, 'Enter');
  await page.waitForFunction(() => document.activeElement?.name === 'labels');
  await page.keyboard.type('stage=paper');
  await press(page, 'Enter');
  await until(
    () => ids.every((id) => json('describe', id).labels.stage === 'paper'),
    'both are labelled',
  );
  stop(...ids);
});

test('7 see why a job waits', async ({ page }) => {
  const holder = submit('--gpus', 8, '--', 'sleep', '600');
  const id = submit('--gpus', 8, '--name', 'kb-waits', '--', 'true');
  await palette(page, 'kb-waits');
  await page.waitForSelector('h2:has-text("Why it waits")');
  stop(id, holder);
});

test('8 drain a node and take it back', async ({ page }) => {
  const node = json('nodes').nodes[0].name;
  const drained = () => json('nodes').nodes[0].state;
  await palette(page, `node ${node}`);
  await page.waitForSelector('button:has-text("Drain")');
  await tabTo(page, 'main button', 'Drain');
  await press(page, 'Enter');
  await page.waitForSelector('dialog[open]');
  await tabTo(page, 'dialog button', 'Drain');
  await press(page, 'Enter');
  await until(() => drained() === 'drained', 'it is drained');
  billow('undrain', node);
});

test('9 look at the costs of yesterday', async ({ page }) => {
  await press(page, 'g', 'c');
  await page.waitForURL(/#\/costs/);
  await page.waitForSelector('.tabs a:has-text("Yesterday")');
  await tabTo(page, '.tabs a', 'Yesterday');
  await press(page, 'Enter');
  await page.waitForSelector('.card:has-text("Yesterday") .big');
});

test('10 choose to be told', async ({ page }) => {
  await palette(page, 'notifications');
  await page.waitForURL(/#\/settings$/);
  await page.waitForSelector('input[name=address]');
  await tabTo(page, 'main select[name=via]');
  await page.keyboard.type('ntfy');
  await tabTo(page, 'input[name=address]');
  await page.keyboard.type('https://ntfy.sh/kb-topic');
  await tabTo(page, 'main button', 'Add');
  await press(page, 'Enter');
  await page.waitForSelector('td:has-text("ntfy.sh")');
  const { targets } = json('notify', 'list');
  equal(targets[0].via, 'ntfy', 'the head has it');
  billow('notify', 'rm', targets[0].id);
});

process.on('exit', () => {
  void browser.close();
});
await main();
