// The heat map of a very large fleet: frames per second while it is looked at, pointed at, scrolled
// and shaded anew, each for BENCH_SECONDS, with live updates all the time. Prints figures as JSON,
// which `./dev bench eyes` checks. A frame is late if the main thread computed for longer than a
// sixtieth of a second; that is CPU time, so other work on the machine does not count.
import { launch, mainThread, open } from './support.mjs';

const seconds = Number(process.env.BENCH_SECONDS || 5);
const browser = await launch();
const { page, trouble } = await open(browser, {
  width: 1440,
  height: 1000,
  scale: 1,
  wait: 180_000,
});
await page.waitForSelector('.heat canvas');
await page.waitForFunction(() =>
  document.querySelector('.heat .hover').textContent.includes('GPU'),
);
const cells = await page.locator('.heat .hover').innerText();
const box = await page.locator('.heat-box').boundingBox();
await page.evaluate(() => {
  window.frames = 0;
  const count = () => {
    window.frames++;
    requestAnimationFrame(count);
  };
  requestAnimationFrame(count);
});

// Something every `stepMs`, for as long as a measurement lasts.
async function during(stepMs, step) {
  const end = Date.now() + seconds * 1000;
  for (let n = 0; Date.now() < end; n++) {
    await step(n);
    if (stepMs) await page.waitForTimeout(stepMs);
  }
}
const ways = {
  'live updates alone': () => page.waitForTimeout(seconds * 1000),
  'the pointer moves over it': () =>
    during(0, (n) =>
      page.mouse.move(
        box.x + 4 + ((n * 37) % (box.width - 8)),
        box.y + 4 + ((n * 11) % Math.max(1, Math.min(box.height, 900) - 8)),
      ),
    ),
  'the page is scrolled': () => during(0, (n) => page.mouse.wheel(0, (n % 40 < 20 ? 1 : -1) * 60)),
  'it is shaded anew five times a second': () =>
    during(200, (n) =>
      page.evaluate((k) => document.querySelectorAll('.heat .tabs button')[k].click(), n % 4),
    ),
};
const out = { cells, ways: {}, trouble };
for (const [name, run] of Object.entries(ways)) {
  let frames = 0;
  let took = 0;
  const main = await mainThread(browser, page, async () => {
    const before = await page.evaluate(() => [window.frames, performance.now()]);
    await run();
    const after = await page.evaluate(() => [window.frames, performance.now()]);
    frames = after[0] - before[0];
    took = (after[1] - before[1]) / 1000;
  });
  out.ways[name] = {
    frames,
    per_s: frames / took,
    late: main.late,
    longest_ms: main.longest,
    busy: main.total / 1000 / took,
  };
}
console.log(JSON.stringify(out));
await browser.close();
