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
// One page that changes its size and theme: six browsers' worth of pages are slow to open.
const { page, trouble } = await open(browser, { scale: 1, wait: 120_000 });
const views = [false, true].flatMap((dark) =>
  sizes.map(([width, height]) => ({ dark, width, height })),
);
const sheet = await browser.newPage({ viewport: { width: 1984, height: 1500 } });
const row = (images) =>
  `<div style="display:flex;gap:8px;margin:8px;align-items:flex-start">${images
    .map((i) => `<img height="730" src="data:image/jpeg;base64,${i.toString('base64')}">`)
    .join('')}</div>`;
let wrong = 0;
for (const name of only) {
  await go(page, pages[name]);
  await page.waitForLoadState('networkidle', { timeout: 2500 }).catch(() => {});
  const images = [];
  for (const { dark, width, height } of views) {
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: dark ? 'dark' : 'light' });
    await page.waitForTimeout(700); // charts draw themselves anew
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
for (const text of trouble) if (++wrong) console.log(text);
await browser.close();
process.exit(wrong ? 1 : 0);
