// Calls the gateway at ADDRESS over several connections until its input ends: short calls, streams
// of the server, and on each connection a stream in both directions that stays open throughout.
// Prints the number of finished calls as it goes, and at the end what failed, as JSON.
import grpc from '@grpc/grpc-js';

const [address, endpoint, connections] = process.argv.slice(2);
const same = (b) => b;
const metadata = new grpc.Metadata();
metadata.set('billow-endpoint', endpoint);
const out = { calls: 0, words: 0, failed: [], wrong: 0 };
let stopping = false;
process.stdin.on('end', () => (stopping = true)).resume();
const failed = (what) => (error) => out.failed.push(`${what}: ${error.code} ${error.details}`);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const unary = (client, text) =>
  new Promise((resolve) =>
    client.makeUnaryRequest(
      '/test.Echo/Unary', same, same, Buffer.from(text), metadata,
      (error, answer) => {
        if (error) failed('unary')(error);
        else if (!answer.toString().startsWith(text)) out.wrong++;
        resolve();
      },
    ),
  );

const list = (client, count) =>
  new Promise((resolve) => {
    let items = 0;
    client
      .makeServerStreamRequest('/test.Echo/List', same, same, Buffer.from(String(count)), metadata)
      .on('data', () => items++)
      .on('error', (error) => resolve(failed('list')(error)))
      .on('end', () => resolve((out.wrong += items !== count)));
  });

const chat = (client, name) =>
  new Promise((resolve) => {
    let word = 0;
    const call = client.makeBidiStreamRequest('/test.Echo/Chat', same, same, metadata);
    const say = () => call.write(Buffer.from(`${name} ${word}`));
    call.on('data', async (piece) => {
      out.wrong += piece.toString() !== `you said ${name} ${word}`;
      out.words++;
      word++;
      await pause(20);
      if (stopping) call.end();
      else say();
    });
    call.on('error', (error) => resolve(failed('chat')(error)));
    call.on('end', resolve);
    say();
  });

const calls = async (client, name) => {
  for (let i = 0; !stopping; i++) {
    await Promise.all([unary(client, `${name}-${i}`), list(client, 20), unary(client, 'more')]);
    out.calls += 3;
  }
};

const progress = setInterval(() => console.log(JSON.stringify(out)), 50);
const all = [];
for (let i = 0; i < Number(connections); i++) {
  // A connection of its own for each client.
  const options = { 'grpc.use_local_subchannel_pool': 1 };
  const client = new grpc.Client(address, grpc.credentials.createInsecure(), options);
  all.push(calls(client, `client ${i}`), chat(client, `talker ${i}`));
}
await Promise.all(all);
clearInterval(progress);
console.log(JSON.stringify({ ...out, over: true }));
process.exit(0);
