// The pictures in docs/screenshots, light and dark, and tour.svg: an animation of about 20 seconds
// made of pictures, for the README. demo_fleet.py starts the fleet they show.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { go, json, launch, open, shots } from './support.mjs';

const width = 1280,
  height = 800;
const secondsEach = 2.5;
const named = (name) => json('ps').jobs.find((j) => j.name === name)?.id;
const train = named('detector-v3'),
  waits = named('pretrain-13b');
const pages = [
  ['overview', '/', 'Every GPU: who holds it, what is free, what it costs'],
  ['jobs', '/jobs', 'All jobs that ever ran, searched on the head'],
  ['job', `/jobs/${train}`, 'A job: its log, its figures, its cost'],
  ['explain', `/jobs/${waits}`, 'Why a job waits, and when it starts'],
  ['nodes', '/nodes', 'Who used which GPU when, and what stood idle'],
  ['node', '/nodes/h100-a', 'A node: wiring, health and charts'],
  ['endpoints', '/endpoints/chat', 'An endpoint: requests, latency, replicas, cost'],
  ['costs', '/costs', 'Costs to the cent, budgets with a forecast'],
  ['waste', '/waste', ''],
  ['activity', '/activity', ''],
  ['reservations', '/reservations', ''],
  ['advisor', '/advisor', ''],
];

// Pictures over one another; each is seen for its part of the time.
function animation(frames) {
  const total = frames.length * secondsEach;
  const part = (100 / frames.length).toFixed(3);
  const images = frames
    .map(
      ({ image, text }, i) =>
        `<g class="f" style="animation-delay:${i * secondsEach}s"><title>${text}</title>` +
        `<image width="${width}" height="${height}" ` +
        `href="data:image/jpeg;base64,${image.toString('base64')}"/>` +
        `<rect y="${height}" width="${width}" height="52" fill="#10151d"/>` +
        `<text x="${width / 2}" y="${height + 34}">${text}</text></g>`,
    )
    .join('\n');
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height + 52}" role="img"
  aria-label="A tour of Billow's dashboard">
<style>
.f{opacity:0;animation:show ${total}s linear infinite}
.f:first-of-type{opacity:1}
@keyframes show{0%,${part}%{opacity:1}${(Number(part) + 0.01).toFixed(3)}%,100%{opacity:0}}
text{font:24px system-ui,sans-serif;fill:#e4e9f1;text-anchor:middle}
@media (prefers-reduced-motion:reduce){.f{animation:none}}
</style>
${images}
</svg>
`;
}

mkdirSync(shots, { recursive: true });
const browser = await launch();
for (const dark of [false, true]) {
  const { page, context, trouble } = await open(browser, { width, height, dark, scale: 1 });
  const frames = [];
  for (const [name, path, text] of pages) {
    await go(page, path);
    await page.waitForLoadState('networkidle', { timeout: 2500 }).catch(() => {});
    await page.waitForTimeout(700); // charts draw themselves when their figures are there
    await page.screenshot({ path: join(shots, `${name}${dark ? '-dark' : ''}.png`) });
    if (text && !dark) {
      const image = await page.screenshot({ type: 'jpeg', quality: 55 });
      frames.push({ image, text });
    }
  }
  if (frames.length) writeFileSync(join(shots, 'tour.svg'), animation(frames));
  if (trouble.length) throw new Error(trouble.join('\n'));
  await context.close();
}
await browser.close();
