// Bundles the tests and runs them: `node run.mjs [--write] [NAME…]`. --write: run_forms.json again.
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(join(here, '../../web/package.json'));
const { buildSync } = require('esbuild');
const wanted = process.argv.slice(2).filter((word) => word !== '--write');
const files = readdirSync(here).filter(
  (f) => f.endsWith('.test.ts') && (!wanted.length || wanted.some((w) => f.startsWith(w))),
);
const out = mkdtempSync(join(tmpdir(), 'billow-web-'));
try {
  buildSync({
    entryPoints: files.map((f) => join(here, f)),
    outdir: out,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    format: 'esm',
    platform: 'node',
    logLevel: 'error',
  });
  const built = files.map((f) => join(out, f.replace(/\.ts$/, '.mjs')));
  process.exitCode = spawnSync(process.execPath, ['--test', ...built], {
    stdio: 'inherit',
    env: {
      ...process.env,
      BILLOW_ROOT: join(here, '../..'),
      BILLOW_RUN_FORMS: join(here, 'run_forms.json'),
      ...(process.argv.includes('--write') ? { BILLOW_WRITE_FORMS: '1' } : {}),
    },
  }).status;
} finally {
  rmSync(out, { recursive: true, force: true });
}
