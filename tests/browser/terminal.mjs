// The web terminal against a real head, in Debian's Chromium. Each case is a user's action.
import { equal, go, launch, main, ok, open, shot, test, until } from './support.mjs';

const browser = await launch();

// A shell without GPUs in a page of this size, and a way to type and to read its screen.
async function openShell(options) {
  const opened = await open(browser, options);
  const { page } = opened;
  await go(page, '/terminal');
  await page.fill('main input[type=number]', '0');
  await page.click('text=Open a shell');
  await page.waitForURL(/#\/terminal\/\d+/);
  await page.waitForSelector('text=/: connected/');
  const rows = page.locator('.xterm-rows');
  await page.locator('.term-host').click();
  // Types a command and waits for its output, which must match. The echoed command must not.
  const run = async (command, output) => {
    let found = null;
    await page.keyboard.type(`clear; ${command}\n`);
    await until(
      async () => (found = output.exec(await rows.innerText())) !== null,
      `${output} after ${command}`,
    );
    return found;
  };
  return { ...opened, rows, run };
}

test('the terminal echoes, and a full-screen program draws', async () => {
  const { page, context, trouble, rows, run } = await openShell({});
  await run('echo typed-$((6*7))', /^typed-42/m);
  await page.keyboard.type(
    `printf '\\033[2J\\033[5;10Hhere\\033[1;31mred\\033[0m \\033[38;2;255;120;0mtrue\\033[0m'\n`,
  );
  await until(
    async () => (await rows.locator('> div').nth(4).innerText()).includes('herered'),
    'cursor movements',
  );
  // Rows are drawn anew at any moment; a span that was just replaced has no style.
  const isOrange = (e) => getComputedStyle(e).color === 'rgb(255, 120, 0)';
  await until(
    () => rows.locator('span:has-text("true")').first().evaluate(isOrange),
    'colours, although the page allows no inline style',
  );
  equal(await rows.locator('b, i, img').count(), 0, 'only text');
  await shot(page, 'terminal');
  await page.keyboard.type('exit\n');
  await page.waitForSelector('text=/ended/');
  equal(trouble, [], 'no errors in the console');
  await context.close();
});

test('the terminal follows the size of the window', async () => {
  for (const { width, height, dark } of [
    { width: 1280, height: 900, dark: false },
    { width: 700, height: 600, dark: true },
    { width: 390, height: 800, dark: false },
  ]) {
    const { page, context, trouble, rows, run } = await openShell({
      width,
      height,
      dark,
    });
    let asked = 1000; // another mark each time: the old screen may still be shown
    const size = async () => {
      asked++;
      const output = new RegExp(`^(\\d+) (\\d+)\\s+size-${asked}`, 'm');
      return (await run(`stty size; echo size-$((${asked}+0))`, output)).slice(1).map(Number);
    };
    const [tall, wide] = await size();
    equal(await rows.locator('> div').count(), tall, 'as many rows as the job knows of');
    const cell =
      (await page.evaluate(
        () => document.querySelector('.xterm-screen').getBoundingClientRect().width,
      )) / wide;
    ok(cell > 5 && cell < 12, `columns of ${cell} pixels`);
    await page.setViewportSize({ width: width - 100, height: height - 120 });
    await until(async () => {
      const [t, w] = await size();
      return t < tall && w < wide;
    }, 'fewer rows and columns');
    await shot(page, `terminal-${width}`);
    await page.keyboard.type('exit\n');
    await page.waitForSelector('text=/ended/');
    equal(trouble, [], 'no errors in the console');
    await context.close();
  }
});

test('the terminal pastes, copies, searches and keeps its memory bounded', async () => {
  const { page, context, trouble, run, rows } = await openShell({});
  await page.evaluate(() => {
    const data = new DataTransfer();
    data.setData('text/plain', 'echo pasted-$((6*7))');
    document
      .querySelector('.xterm-helper-textarea')
      .dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true }));
  });
  await page.keyboard.press('Enter');
  await until(async () => /^pasted-42/m.test(await rows.innerText()), 'the pasted command');
  await run('seq 1 200000; echo flood-$((1+1))', /^flood-2/m);
  const heap = await page.evaluate(() => performance.memory.usedJSHeapSize);
  ok(heap < 150 << 20, `${heap} bytes after 200,000 lines`);
  await page.keyboard.press('Shift+Escape');
  equal(
    await page.evaluate(() => document.activeElement.getAttribute('aria-label')),
    'Find in the terminal',
    'Shift+Esc leaves the terminal',
  );
  await page.keyboard.type('199900');
  await page.keyboard.press('Enter');
  await until(
    async () => (await rows.innerText()).includes('199900'),
    'a line that had scrolled away',
  );
  await page.keyboard.press('Escape');
  await page.keyboard.type('exit\n');
  await page.waitForSelector('text=/ended/');
  equal(trouble, [], 'no errors in the console');
  await context.close();
});

test('the terminal sends keys as other terminals do, and text that no key typed', async () => {
  const { page, context, trouble, rows } = await openShell({});
  await page.keyboard.type('clear; cat -v\n');
  await until(async () => !(await rows.innerText()).includes('cat -v'), 'cat reads');
  // Shift+Tab, Ctrl+Left, F12 and Alt+b, as xterm sends them.
  const keys = {
    'Shift+Tab': '^[[Z',
    'Control+ArrowLeft': '^[[1;5D',
    F12: '^[[24~',
    'Alt+b': '^[b',
  };
  for (const [key, sent] of Object.entries(keys)) {
    await page.keyboard.press(key);
    await page.keyboard.press('Enter');
    await until(async () => (await rows.innerText()).includes(sent), `${key} sends ${sent}`);
  }
  // An input method, a dead key or a phone's keyboard: text without a key.
  await page.keyboard.insertText('grüße');
  await page.keyboard.press('Enter');
  await until(async () => /grM-CM-<M-CM-\^_e/.test(await rows.innerText()), 'text by input');
  await page.keyboard.press('Control+d');
  await page.keyboard.type('exit\n');
  await page.waitForSelector('text=/ended/');
  equal(trouble, [], 'no errors in the console');
  await context.close();
});

process.on('exit', () => {
  void browser.close();
});
await main();
