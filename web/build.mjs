// Bundles the dashboard into dist/. Every script and style has a hash of its content in its name, so
// that browsers keep it; index.html names those of the first load, the others are imported when a
// page needs them. The binary embeds index.html, and the rest as one file, assets.pack: a line of
// JSON with names, types and sizes, then the contents, each as it is, gzipped and as brotli.
import { build } from 'esbuild';
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

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
        entryPoints: [join(here, 'src/jobs/xterm.ts')],
        inject: [join(here, 'src/jobs/strict_document.ts')],
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
  entryPoints: { live: join(here, 'src/data/live_worker.ts') },
  outdir: out,
  entryNames: 'assets/[name]-[hash]',
  metafile: true,
});
const workerFile = Object.keys(worker.metafile.outputs)[0].replace(/^.*(?=assets\/)/, '');
const bundle = await build({
  ...common,
  metafile: true,
  define: { LIVE_WORKER: JSON.stringify(workerFile) },
  entryPoints: { app: join(here, 'src/main.tsx') },
  outdir: out,
  entryNames: 'assets/[name]-[hash]',
  chunkNames: 'assets/[name]-[hash]',
  splitting: true,
  jsx: 'automatic',
  jsxImportSource: 'preact',
  loader: { '.css': 'css' },
  plugins: [withXterm],
});
mkdirSync(assets, { recursive: true });
const names = readdirSync(assets).sort();
let page = readFileSync(join(here, 'src/index.html'), 'utf8');
for (const ext of ['js', 'css']) {
  const name = names.find((n) => n.startsWith('app-') && n.endsWith(`.${ext}`));
  page = page.replaceAll(`/app.${ext}`, `/assets/${name}`);
}
// What the first script imports is asked for together with it.
const [, first] = Object.entries(bundle.metafile.outputs).find(([at]) => /\/app-\w+\.js$/.test(at));
const imported = first.imports
  .filter((i) => i.kind === 'import-statement')
  .map((i) => `<link rel="modulepreload" href="/${i.path.replace(/^.*(?=assets\/)/, '')}" />`);
page = page.replace('</head>', `  ${imported.join('\n    ')}\n  </head>`);
writeFileSync(join(out, 'index.html'), page);

const parts = [];
const list = names.map((name) => {
  const type = types[extname(name)];
  if (!type) throw new Error(`${name}: unknown file type`);
  const content = readFileSync(join(assets, name));
  const gzip = gzipSync(content, { level: 9 });
  const br = brotliCompressSync(content, {
    params: {
      [constants.BROTLI_PARAM_QUALITY]: 11,
      [constants.BROTLI_PARAM_SIZE_HINT]: content.length,
    },
  });
  parts.push(content, gzip, br);
  return { name, type, bytes: content.length, gzip: gzip.length, br: br.length };
});
writeFileSync(
  join(out, 'assets.pack'),
  Buffer.concat([Buffer.from(`${JSON.stringify(list)}\n`), ...parts]),
);
