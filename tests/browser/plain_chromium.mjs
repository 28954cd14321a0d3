// A Chromium without a test library between, for measurements of memory: Playwright asks each page
// for all its traffic, and the page then keeps the bodies of its requests. Commands of the DevTools
// protocol go over a pipe; no port is opened.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from './support.mjs';

export async function plainChromium() {
  const program = process.env.CHROMIUM || '/usr/bin/chromium';
  if (!existsSync(program)) {
    console.log(`skipped: ${program} does not exist`);
    process.exit(77);
  }
  const profile = mkdtempSync(join(tmpdir(), 'billow-chromium-'));
  const child = spawn(
    program,
    [
      '--headless',
      '--remote-debugging-pipe',
      `--user-data-dir=${profile}`,
      '--no-sandbox',
      '--disable-dev-shm-usage',
      '--disable-gpu',
      '--disable-extensions',
      '--disable-component-update',
      '--disable-background-networking',
      '--disable-backgrounding-occluded-windows',
      '--disable-renderer-backgrounding',
      '--disable-background-timer-throttling',
      '--no-first-run',
      'about:blank',
    ],
    { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] },
  );
  const browser = new Chromium(child, profile);
  await browser.send('Target.getTargets');
  return browser;
}

class Chromium {
  #waiting = new Map();
  #listeners = new Map();
  #last = 0;

  constructor(child, profile) {
    this.child = child;
    this.profile = profile;
    let rest = [];
    child.stdio[4].on('data', (data) => {
      for (let end = data.indexOf(0); end >= 0; end = data.indexOf(0)) {
        this.#take(Buffer.concat([...rest, data.subarray(0, end)]).toString());
        data = data.subarray(end + 1);
        rest = [];
      }
      if (data.length) rest.push(data);
    });
    child.on('exit', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error('Chromium has ended'));
    });
  }

  #take(text) {
    const { id, result, error, method, params } = JSON.parse(text);
    if (!id) return this.#listeners.get(method)?.(params);
    const { resolve, reject, what } = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error) reject(new Error(`${what}: ${error.message}`));
    else resolve(result);
  }

  on(method, listener) {
    this.#listeners.set(method, listener);
  }

  send(method, params = {}, sessionId = undefined) {
    const id = ++this.#last;
    this.child.stdio[3].write(JSON.stringify({ id, method, params, sessionId }) + '\0');
    return new Promise((resolve, reject) =>
      this.#waiting.set(id, { resolve, reject, what: method }),
    );
  }

  async attach(targetId) {
    const { sessionId } = await this.send('Target.attachToTarget', { targetId, flatten: true });
    return new Tab(this, sessionId);
  }

  // A tab in a window of its own, so that none hides another. `window.trouble` has its errors.
  async open(url, { width = 1440, height = 900 } = {}) {
    const { targetId } = await this.send('Target.createTarget', {
      url: 'about:blank',
      newWindow: true,
    });
    const tab = await this.attach(targetId);
    const size = { width, height, deviceScaleFactor: 1, mobile: false };
    await tab.send('Emulation.setDeviceMetricsOverride', size);
    await tab.send('Emulation.setFocusEmulationEnabled', { enabled: true });
    await tab.send('Page.enable');
    await tab.send('Page.addScriptToEvaluateOnNewDocument', { source: `(${watch})()` });
    await tab.send('Page.navigate', { url });
    return tab;
  }

  async close() {
    const ended = new Promise((r) => this.child.on('exit', r));
    this.send('Browser.close').catch(() => {});
    await ended;
    rmSync(this.profile, { recursive: true, force: true });
  }
}

class Tab {
  constructor(browser, session) {
    this.browser = browser;
    this.session = session;
  }

  send(method, params) {
    return this.browser.send(method, params, this.session);
  }

  async evaluate(expression) {
    const options = { expression, returnByValue: true, awaitPromise: true };
    const { result, exceptionDetails } = await this.send('Runtime.evaluate', options);
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.text}`);
    return result.value;
  }

  wait(selector, seconds = 180) {
    const found = `!!document.querySelector(${JSON.stringify(selector)})`;
    return until(() => this.evaluate(found).catch(() => false), selector, seconds);
  }
}

// Runs in the page before its own scripts.
function watch() {
  window.trouble = [];
  const note = (text) => window.trouble.length < 50 && window.trouble.push(String(text));
  // Without `error` nothing was thrown: observers of sizes that take more than a frame are told so.
  addEventListener('error', (e) => e.error && note(`thrown: ${e.message}`));
  addEventListener('unhandledrejection', (e) => note(`rejected: ${e.reason}`));
  for (const kind of ['error', 'warn']) {
    const before = console[kind].bind(console);
    console[kind] = (...all) => {
      note(`${kind}: ${all.join(' ')}`);
      before(...all);
    };
  }
}
