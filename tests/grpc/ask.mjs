// Calls each kind of method through the gateway at ADDRESS and prints what came back as JSON.
import grpc from '@grpc/grpc-js';

const [address, endpoint] = process.argv.slice(2);
const client = new grpc.Client(address, grpc.credentials.createInsecure());
const same = (b) => b;
const metadata = (more = {}) => {
  const out = new grpc.Metadata();
  for (const [name, value] of Object.entries({ 'billow-endpoint': endpoint, ...more }))
    out.set(name, value);
  return out;
};

const unary = (text, more, options = {}) =>
  new Promise((resolve) => {
    const out = {};
    const call = client.makeUnaryRequest(
      '/test.Echo/Unary', same, same, Buffer.from(text), metadata(more), options,
      (error, answer) => {
        out.answer = answer?.toString();
        if (error) Object.assign(out, { code: error.code, details: error.details });
      },
    );
    call.on('status', (status) => {
      out.sum = status.metadata.get('sum')[0];
      resolve(out);
    });
  });

const list = (count) =>
  new Promise((resolve, reject) => {
    const items = [];
    client
      .makeServerStreamRequest('/test.Echo/List', same, same, Buffer.from(String(count)), metadata())
      .on('data', (piece) => items.push(piece.toString()))
      .on('error', reject)
      .on('end', () => resolve(items));
  });

const collect = (pieces, bytes) =>
  new Promise((resolve, reject) => {
    const call = client.makeClientStreamRequest(
      '/test.Echo/Collect', same, same, metadata(),
      (error, answer) => (error ? reject(error) : resolve(Number(answer.toString()))),
    );
    let left = pieces;
    const more = () => {
      while (left-- > 0) if (!call.write(Buffer.alloc(bytes))) return call.once('drain', more);
      call.end();
    };
    more();
  });

const chat = (words) =>
  new Promise((resolve, reject) => {
    const heard = [];
    const call = client.makeBidiStreamRequest('/test.Echo/Chat', same, same, metadata());
    call.on('data', (piece) => {
      heard.push(piece.toString());
      if (heard.length === words.length) call.end();
      else call.write(Buffer.from(words[heard.length]));
    });
    call.on('error', reject);
    call.on('end', () => resolve(heard));
    call.write(Buffer.from(words[0]));
  });

const out = {
  unary: await unary('hello', { 'x-word': 'there' }),
  failure: await unary('fail'),
  deadline: (await unary('hang', {}, { deadline: Date.now() + 500 })).code,
  missing: await unary('hello', { 'billow-endpoint': 'none' }),
  listed: (await list(1000)).length,
  collected: await collect(64, 256 * 1024),
  heard: await chat(['one', 'two', 'three']),
};
console.log(JSON.stringify(out));
client.close();
