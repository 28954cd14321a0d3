// A dashboard that is only open. Prints "open" when it shows the fleet, then waits to be killed.
import { launch, open } from './support.mjs';

const browser = await launch();
const { page } = await open(browser, { width: 1440, height: 1000 });
await page.waitForSelector('.cells a, .tile');
console.log('open');
setInterval(() => {}, 1 << 30);
