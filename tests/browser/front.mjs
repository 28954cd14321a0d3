// A server in front of a head that serves the bundle of BILLOW_WEB and passes all else on, streams
// and WebSockets included. For work on the pages without building the binary.
import { createServer, request } from 'node:http';
import { createReadStream, existsSync, readFileSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { extname, join } from 'node:path';

const folder = process.env.BILLOW_WEB;
const types = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const fronts = new Map();

function asTheHeadSeesIt(headers, target) {
  const out = { ...headers, host: target.host };
  if (out.origin) out.origin = target.origin;
  if (out.referer) delete out.referer;
  return out;
}

export function inFrontOf(origin) {
  if (fronts.has(origin)) return fronts.get(origin);
  const target = new URL(origin);
  const server = createServer((asked, answer) => {
    const path = new URL(asked.url, origin).pathname;
    const file = join(folder, path === '/' ? 'index.html' : path);
    if (asked.method === 'GET' && existsSync(file) && statSync(file).isFile()) {
      answer.writeHead(200, {
        'Content-Type': types[extname(file)] ?? 'application/octet-stream',
        'Content-Security-Policy': policy,
        'Cache-Control': path.startsWith('/assets/') ? 'public, immutable' : 'no-cache',
      });
      if (path === '/') answer.end(readFileSync(file));
      else createReadStream(file).pipe(answer);
      return;
    }
    const passed = request(
      {
        host: target.hostname,
        port: target.port,
        method: asked.method,
        path: asked.url,
        headers: asTheHeadSeesIt(asked.headers, target),
      },
      (got) => {
        answer.writeHead(got.statusCode, got.headers);
        got.pipe(answer);
        got.on('close', () => {
          if (!got.complete) answer.destroy(); // a stream that broke
        });
      },
    );
    passed.on('error', () => answer.destroy());
    answer.on('close', () => passed.destroy());
    asked.pipe(passed);
  });
  server.on('upgrade', (asked, socket, head) => {
    const up = connect(Number(target.port), target.hostname, () => {
      const headers = asTheHeadSeesIt(asked.headers, target);
      const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
      up.write(`GET ${asked.url} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
      if (head.length) up.write(head);
      up.pipe(socket);
      socket.pipe(up);
    });
    up.on('error', () => socket.destroy());
    socket.on('error', () => up.destroy());
  });
  const ready = new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve(`http://127.0.0.1:${server.address().port}`));
  });
  server.unref();
  fronts.set(origin, ready);
  return ready;
}
