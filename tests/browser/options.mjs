// Every option of a job: shown on its page, set in the run form, and kept by "Change and run".
import {
  atAllSizes,
  axe,
  billow,
  equal,
  go,
  json,
  launch,
  main,
  ok,
  submit,
  test,
  until,
} from './support.mjs';

const browser = await launch();
const job = (id) => json('describe', id);
const kept = ({ argv, cwd, env_digest, ...rest }) => rest; // eslint-disable-line
// Options that change how a job is placed, stopped and continued, not whether it can run here.
const GIVEN = [
  ['--stop-grace', '30s'],
  ['--retries', '2', '--backoff', '5s'],
  ['--checkpoint-every', '10m', '--checkpoint-signal', 'USR1', '--checkpoint-dir', '/tmp'],
  ['--topology', 'rack,nvlink'],
  ['--max-price', '3.50'],
  ['--rerun-if-lost'],
  ['--suspend-hook', './save.sh now'],
  ['--label', 'team=vision'],
].flat();

test('the page of a job shows what was asked', async ({ page }) => {
  const id = submit(...GIVEN, '--name', 'asked', '--', 'sleep', '600');
  await go(page, `/jobs/${id}`);
  const options = page.locator('dl.facts dt:text-is("Options") + dd');
  await options.waitFor();
  const said = await options.locator('.tag').allInnerTexts();
  for (const each of [
    'stop grace: 30s',
    'backoff: 5s',
    'retries: 2',
    'checkpoint every: 10m',
    'checkpoint signal: USR1',
    'topology: rack,nvlink',
    'max price: $3.50 per GPU and hour',
    'rerun if lost',
    'suspend hook: ./save.sh now',
  ])
    ok(said.includes(each), `${each} is not among ${said.join('; ')}`);
  await axe(page, 'a job with options');
  await atAllSizes(page, 'job-options');

  await page.click('a:has-text("Change and run")');
  await page.waitForSelector('#kept:has-text("--suspend-hook ./save.sh now")');
  await page.locator('input[name=name]').fill('asked-again');
  await page.locator('button:text-is("Run")').click();
  await page.waitForFunction(
    (old) => /#\/jobs\/\d+$/.test(location.hash) && !location.hash.endsWith(`/${old}`),
    id,
  );
  const again = Number((await page.evaluate(() => location.hash)).split('/').pop());
  equal(kept(job(again).spec), { ...kept(job(id).spec), name: 'asked-again' }, 'all of it is kept');
  billow('stop', id, again);
});

test('the run form sets options of every kind', async ({ page }) => {
  await go(page, '/run');
  await page.locator('input[name=command]').fill('sleep 600');
  await page.locator('input[name=gpus]').fill('0.5');
  await page.locator('details.more-options summary').click();
  const field = (flag) => page.locator(`.more-options [name="${flag}"]`);
  const fill = (flag, text) => field(flag).fill(text);
  await fill('stop-grace', '90');
  await page.waitForSelector('[role=alert]:has-text("--stop-grace: “90”: use 30s, 90m or 2h")');
  await fill('stop-grace', '90s');
  await fill('label', 'team=vision, run=7');
  await fill('topology', 'zone:required,nvlink');
  await fill('checkpoint-signal', 'usr2');
  await fill('max-price', '$2.25/gpu-h');
  await field('share').check();
  await field('suspendable').selectOption('no');
  const line = page.locator('.elsewhere .line');
  await until(
    async () =>
      (await line.innerText()).includes(
        'billow run --gpus 0.5 --share time --checkpoint-signal USR2 --suspendable no' +
          ' --stop-grace 90s --topology zone:required,nvlink --max-price 2.25' +
          ' --label team=vision --label run=7 -- sleep 600',
      ),
    'the command line',
  );
  await page.click('.elsewhere button:has-text("Python")');
  ok((await line.innerText()).includes('labels={"team": "vision", "run": "7"}'), 'a dictionary');
  await page.click('.elsewhere button:has-text("Job file")');
  ok((await line.innerText()).includes('label = ["team=vision", "run=7"]'), 'a list');
  await axe(page, 'the run form with its options');
  await page.locator('.more-options').scrollIntoViewIfNeeded();
  await atAllSizes(page, 'run-options');
  await page.locator('button:text-is("Run")').click();
  await page.waitForFunction(() => /#\/jobs\/\d+$/.test(location.hash));
  const id = Number((await page.evaluate(() => location.hash)).split('/').pop());
  const { resources, place, labels, ...spec } = job(id).spec;
  equal(resources, { gpus: 1, share: { milli: 500 } }, 'half a GPU');
  equal(
    place,
    { close_required: true, nvlink_required: true, max_price_nano_usd_per_gpu_h: 2_250_000_000 },
    'where it runs: one zone is the default',
  );
  equal(labels, { run: '7', team: 'vision' }, 'its labels');
  equal(
    [spec.time_sliced, spec.checkpoint_signal, spec.suspendable, spec.stop_grace_ns],
    [true, 12, 'no', 90e9],
    'the others',
  );
  billow('stop', id);
});

await main();
