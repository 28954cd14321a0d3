// Screenshots of every page in light, dark and phone width: `BILLOW_SHOTS=DIR node look.mjs`. Used
// for docs/screenshots.
import { go, launch, open, shot } from './support.mjs';

const browser = await launch();
const pages = process.argv.slice(2).length
  ? process.argv.slice(2)
  : [
      '/',
      '/jobs',
      '/run',
      '/terminal',
      '/endpoints',
      '/nodes',
      '/costs',
      '/waste',
      '/advisor',
      '/activity',
      '/admin',
    ];
for (const [suffix, options] of [
  ['', {}],
  ['-dark', { dark: true }],
  ['-phone', { width: 390, height: 844 }],
]) {
  const { page, context, trouble } = await open(browser, options);
  for (const path of pages) {
    await go(page, path);
    await page.waitForTimeout(700);
    await shot(page, (path === '/' ? 'overview' : path.slice(1).replace(/[/?=]/g, '-')) + suffix);
  }
  if (trouble.length) console.log(trouble.join('\n'));
  await context.close();
}
await browser.close();
