// Every page at three sizes and in both themes, one sheet of pictures for each page, to be looked
// at. demo_fleet.py starts the fleet they show; the sheets go to BILLOW_SHOTS.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { go, json, launch, open, shots } from './support.mjs';

const sizes = [
  [1440, 1000],
  [834, 1112],
  [390, 844],
];
const jobs = json('ps').jobs;
const named = (name) => jobs.find((j) => j.name === name)?.id;
const pages = {
  overview: '/',
  jobs: '/jobs?show=all',
  job: `/jobs/${named('detector-v3')}`,
  waiting: `/jobs/${named('pretrain-13b')}`,
  compare: `/compare?jobs=${named('detector-v3')},${named('finetune-clip')}`,
  run: '/run',
  terminal: '/terminal',
  endpoints: '/endpoints',
  endpoint: '/endpoints/chat',
  nodes: '/nodes',
  node: '/nodes/h100-a',
  costs: '/costs',
  waste: '/waste',
  advisor: '/advisor',
  activity: '/activity',
  more: '/more',
  settings: '/settings',
  schedules: '/schedules',
  reservations: '/reservations',
  volumes: '/volumes',
  secrets: '/secrets',
  environments: '/environments',
  webhooks: '/webhooks',
  prices: '/prices',
  invoices: '/invoices',
  pools: '/pools',
  audit: '/audit',
  admin: '/admin',
};
const only = process.env.LOOK_AT?.split(',') ?? Object.keys(pages);

mkdirSync(shots, { recursive: true });
const browser = await launch();
const views = [];
for (const dark of [false, true])
  for (const [width, height] of sizes)
    views.push({ width, ...(await open(browser, { width, height, dark, scale: 1 })) });
const sheet = await browser.newPage({ viewport: { width: 1984, height: 1500 } });
const row = (images) =>
  `<div style="display:flex;gap:8px;margin:8px;align-items:flex-start">${images
    .map((i) => `<img height="730" src="data:image/jpeg;base64,${i.toString('base64')}">`)
    .join('')}</div>`;
let wrong = 0;
for (const name of only) {
  await Promise.all(views.map(({ page }) => go(page, pages[name])));
  await Promise.all(
    views.map(({ page }) =>
      page.waitForLoadState('networkidle', { timeout: 2500 }).catch(() => {}),
    ),
  );
  await sheet.waitForTimeout(500); // charts draw themselves when their figures are there
  const images = [];
  for (const { page, width } of views) {
    const over = await page.evaluate(
      () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
    );
    if (over > 0 && ++wrong) console.log(`${name} at ${width}: ${over} px wider than the window`);
    images.push(await page.screenshot({ type: 'jpeg', quality: 80 }));
  }
  await sheet.setContent(
    `<body style="margin:0;background:#888">${row(images.slice(0, 3))}${row(images.slice(3))}`,
  );
  await sheet.screenshot({ path: join(shots, `${name}.png`) });
}
for (const { trouble } of views) for (const text of trouble) if (++wrong) console.log(text);
await browser.close();
process.exit(wrong ? 1 : 0);
