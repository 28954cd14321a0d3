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
const pictures = Object.fromEntries(only.map((name) => [name, []]));
const wide = [];
for (const dark of [false, true])
  for (const [width, height] of sizes) {
    const { page, context, trouble } = await open(browser, { width, height, dark, scale: 1 });
    for (const name of only) {
      await go(page, pages[name]);
      await page.waitForLoadState('networkidle', { timeout: 2500 }).catch(() => {});
      await page.waitForTimeout(500); // charts draw themselves when their figures are there
      const over = await page.evaluate(
        () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
      );
      if (over > 0) wide.push(`${name} at ${width}: ${over} px too wide`);
      pictures[name].push(
        (await page.screenshot({ type: 'jpeg', quality: 80 })).toString('base64'),
      );
    }
    if (trouble.length) console.log(`${width} ${dark ? 'dark' : 'light'}: ${trouble.join('\n')}`);
    await context.close();
  }
const sheet = await browser.newPage({ viewport: { width: 1840, height: 1500 } });
for (const [name, images] of Object.entries(pictures)) {
  const row = (list) =>
    `<div style="display:flex;gap:8px;margin:8px;align-items:flex-start">${list
      .map((i) => `<img height="730" src="data:image/jpeg;base64,${i}">`)
      .join('')}</div>`;
  await sheet.setContent(
    `<body style="margin:0;background:#888">${row(images.slice(0, 3))}${row(images.slice(3))}`,
  );
  await sheet.screenshot({ path: join(shots, `${name}.jpg`), type: 'jpeg', quality: 80 });
}
console.log(wide.join('\n') || 'no page is wider than its window');
await browser.close();
