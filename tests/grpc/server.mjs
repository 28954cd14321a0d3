// A gRPC server with one method of each kind; messages are plain bytes. It prints its port.
import grpc from '@grpc/grpc-js';

const bytes = (path, requestStream, responseStream) => ({
  path,
  requestStream,
  responseStream,
  requestSerialize: (b) => b,
  requestDeserialize: (b) => b,
  responseSerialize: (b) => b,
  responseDeserialize: (b) => b,
});

const service = {
  unary: bytes('/test.Echo/Unary', false, false),
  list: bytes('/test.Echo/List', false, true),
  collect: bytes('/test.Echo/Collect', true, false),
  chat: bytes('/test.Echo/Chat', true, true),
};

const server = new grpc.Server();
server.addService(service, {
  unary: (call, done) => {
    const text = call.request.toString();
    if (text === 'fail')
      return done({ code: grpc.status.FAILED_PRECONDITION, details: 'not now: é' });
    if (text === 'hang') return; // until its deadline
    const trailer = new grpc.Metadata();
    trailer.set('sum', String(call.request.length));
    const key = call.metadata.get('authorization').length;
    done(null, Buffer.from(`${text} ${call.metadata.get('x-word')} ${key}`), trailer);
  },
  list: (call) => {
    for (let i = 0; i < Number(call.request.toString()); i++) call.write(Buffer.from(`item ${i}`));
    call.end();
  },
  collect: (call, done) => {
    let total = 0;
    call.on('data', (piece) => (total += piece.length));
    call.on('end', () => done(null, Buffer.from(String(total))));
  },
  chat: (call) => {
    call.on('data', (piece) => call.write(Buffer.from(`you said ${piece}`)));
    call.on('end', () => call.end());
  },
});
server.bindAsync(
  `127.0.0.1:${process.env.PORT || 0}`,
  grpc.ServerCredentials.createInsecure(),
  (error, port) => {
    if (error) throw error;
    console.log(port);
  },
);
