// Bundles the dashboard into dist/. The first page load needs index.html, app.js and app.css;
// chunks that pages import on demand get a hash of their content into their names. The binary
// embeds the three files, and all chunks as one file, assets.pack: a line of JSON with their names,
// types and sizes, then their contents.
import { build } from 'esbuild';
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, 'dist');
const assets = join(out, 'assets');
const types = {
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
};

// `import css from 'text:package/file.css'` is the content of the file.
const asText = {
  name: 'text',
  setup(builder) {
    const require = createRequire(import.meta.url);
    builder.onResolve({ filter: /^text:/ }, (args) => ({
      path: require.resolve(args.path.slice(5)),
      namespace: 'text',
    }));
    builder.onLoad({ filter: /.*/, namespace: 'text' }, (args) => ({
      contents: readFileSync(args.path, 'utf8'),
      loader: 'text',
    }));
  },
};

// xterm.js is compiled first and apart, so that `document` means strict_document.ts in it.
const withXterm = {
  name: 'xterm',
  setup(builder) {
    builder.onResolve({ filter: /^\.\/xterm$/ }, () => ({ path: 'xterm', namespace: 'xterm' }));
    builder.onLoad({ filter: /.*/, namespace: 'xterm' }, async () => {
      const compiled = await build({
        ...common,
        entryPoints: [join(here, 'src/xterm.ts')],
        inject: [join(here, 'src/strict_document.ts')],
        define: { 'window.document': 'strictDocument' },
        write: false,
        plugins: [asText],
      });
      return { contents: compiled.outputFiles[0].text, loader: 'js' };
    });
  },
};

const common = {
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  legalComments: 'none',
};
mkdirSync(out, { recursive: true });
rmSync(assets, { recursive: true, force: true });
// The worker that all tabs share is a script of its own.
const worker = await build({
  ...common,
  entryPoints: { live: join(here, 'src/live_worker.ts') },
  outdir: out,
  entryNames: 'assets/[name]-[hash]',
  metafile: true,
});
const workerFile = Object.keys(worker.metafile.outputs)[0].replace(/^.*(?=assets\/)/, '');
await build({
  ...common,
  define: { LIVE_WORKER: JSON.stringify(workerFile) },
  entryPoints: { app: join(here, 'src/main.tsx') },
  outdir: out,
  chunkNames: 'assets/[name]-[hash]',
  splitting: true,
  jsx: 'automatic',
  jsxImportSource: 'preact',
  loader: { '.css': 'css' },
  plugins: [withXterm],
});
copyFileSync(join(here, 'src/index.html'), join(out, 'index.html'));

mkdirSync(assets, { recursive: true });
const names = readdirSync(assets).sort();
const contents = names.map((name) => readFileSync(join(assets, name)));
const list = names.map((name, i) => {
  const type = types[extname(name)];
  if (!type) throw new Error(`${name}: unknown file type`);
  return { name, type, bytes: contents[i].length };
});
writeFileSync(
  join(out, 'assets.pack'),
  Buffer.concat([Buffer.from(`${JSON.stringify(list)}\n`), ...contents]),
);
