// A client and a replica that speak HTTP/2, on the loop of the proxy's rig.
#pragma once

#include "net/http2/http2_session.h"
#include "proxy_rig.h"
#include "tests/support/http2_frames.h"

namespace billow::gateway {
namespace {

namespace h2 = http2_frames;

// A client: a session over a raw connection.
struct Http2Client final : net::Http2Session::Owner {
  using Id = net::Http2Session::StreamId;
  struct Answer {
    int status = 0;
    net::Headers headers, trailers;
    std::string body;
    bool end = false, closed = false;
    net::Http2Error error = net::Http2Error::none;
  };
  explicit Http2Client(Rig& of, net::Http2Limits limits = {})
      : rig(of), raw(of.client()), session(net::Http2Session::Role::client, *this, limits) {}
  Id ask(const h2::Fields& fields, std::string_view body = {}, bool end = true) {
    net::Http2Fields list;
    for (const auto& [name, value] : fields)
      list.add(name, value);
    const Id id = session.open(list, end && body.empty()).value_or(0);
    session.send(id, body);
    if (end)
      session.finish(id);
    return id;
  }
  Id get(std::string path) { return ask(h2::request("GET", std::move(path))); }
  // Sends what is due and reads what has come.
  void turn() {
    unsent.reserve(1 << 20);
    if (unsent.size() < 64 << 10)
      session.take_output(unsent, 64 << 10);
    while (!unsent.empty()) {
      const auto n = ::send(raw.fd(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n <= 0)
        break;
      unsent.erase(0, static_cast<std::size_t>(n));
    }
    if (!reads)
      return;
    raw.pull();
    const std::string got = std::exchange(raw.received, {});
    if (!got.empty())
      valid = valid && session.receive(got, rig.app.loop.steady()).has_value();
  }
  bool until(const std::function<bool()>& done) {
    return rig.run_until([&] {
      turn();
      return done();
    });
  }
  bool finished(Id id) {
    return until([&] { return answers[id].end || answers[id].closed; });
  }

  void stream_head(Id id, net::HttpParser::Head& head, bool) override {
    answers[id].status = head.status;
    answers[id].headers = head.headers;
  }
  void stream_refused(Id, int, const std::string&) override {}
  void stream_body(Id id, std::string_view data) override {
    answers[id].body.append(data);
    if (keep_window)
      session.pause(id);
  }
  void stream_end(Id id, const net::Headers& trailers) override {
    answers[id].end = true;
    answers[id].trailers = trailers;
  }
  void stream_closed(Id id, net::Http2Error error) override {
    answers[id].closed = true;
    answers[id].error = error;
  }
  void stream_relieved(Id) override {}

  Rig& rig;
  RawClient raw;
  net::Http2Session session;
  std::string unsent;
  std::map<Id, Answer> answers;
  bool reads = true, valid = true;
  bool keep_window = false;  // never gives back what it got
};

// A replica: answers each request with what `on_request` says.
class Http2Replica final {
 public:
  using Id = net::Http2Session::StreamId;
  struct Connection final : net::StreamOwner, net::Http2Session::Owner {
    Connection(Http2Replica& of, Fd fd)
        : replica(of),
          stream(std::make_shared<net::Stream>(of.loop, net::Transport(std::move(fd)), this)),
          session(net::Http2Session::Role::server, *this) {
      stream->start();
    }
    ~Connection() override { stream->close(); }
    void flush() {
      std::string out;
      session.take_output(out, 1 << 20);
      stream->send(std::move(out));
    }
    void stream_data(std::string_view data) override {
      (void)session.receive(data, replica.loop.steady());
      flush();
    }
    void stream_eof() override { stream->close(); }
    void stream_failed(std::string) override {}
    void stream_drained() override { flush(); }
    void stream_head(Id id, net::HttpParser::Head& head, bool) override {
      heads[id] = head;
      if (replica.on_head)
        replica.on_head(*this, id);
    }
    void stream_refused(Id, int, const std::string&) override {}
    void stream_body(Id id, std::string_view data) override {
      bodies[id].append(data);
      if (replica.on_body)
        replica.on_body(*this, id, data);
    }
    void stream_end(Id id, const net::Headers&) override {
      if (replica.on_request)
        replica.on_request(*this, id);
    }
    void stream_closed(Id, net::Http2Error error) override {
      replica.resets += error != net::Http2Error::none;
    }
    void stream_relieved(Id) override {}
    Http2Replica& replica;
    std::shared_ptr<net::Stream> stream;
    net::Http2Session session;
    std::map<Id, net::HttpParser::Head> heads;
    std::map<Id, std::string> bodies;
  };

  explicit Http2Replica(net::Loop& of) : loop(of) {
    listener = std::move(*net::listen_on({.host = "127.0.0.1", .port = 0, .unix_path = {}}));
    watch = loop.on_readable(listener.fd.get(), [this] {
      Fd fd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (fd)
        connections.push_back(std::make_unique<Connection>(*this, std::move(fd)));
    });
  }
  // A gRPC answer: a head, one message, and trailers.
  static void answer(Connection& to, Id id, std::string_view body, const char* status = "0") {
    net::Http2Fields fields, trailers;
    fields.add("content-type", "application/grpc");
    trailers.add("grpc-status", status);
    trailers.add("grpc-message", "all is well");
    to.session.answer(id, 200, fields, false);
    to.session.send(id, body);
    to.session.finish(id, &trailers);
  }
  net::Loop& loop;
  net::Listener listener;
  net::Watch watch;
  std::vector<std::unique_ptr<Connection>> connections;
  std::function<void(Connection&, Id)> on_head, on_request;
  std::function<void(Connection&, Id, std::string_view)> on_body;
  int resets = 0;
};

// A gateway before such a replica.
struct GrpcRig : Rig {
  explicit GrpcRig(EndpointProtocol protocol = EndpointProtocol::grpc, Proxy::Options options = {})
      : Rig(std::move(options)), replica(app.loop) {
    replica.on_request = [](Http2Replica::Connection& to, Http2Replica::Id id) {
      const auto& head = to.heads[id];
      if (head.target == "/grpc.health.v1.Health/Check")
        return Http2Replica::answer(to, id, std::string("\0\0\0\0\2\x08\x01", 7));
      Http2Replica::answer(to, id, "echo " + to.bodies[id]);
    };
    serve_by({replica.listener.bound.text()}, protocol);
  }
  void serve_by(const std::vector<std::string>& addresses, EndpointProtocol protocol) {
    Table t;
    EndpointRow row{.name = "rpc"};
    row.serving = 1;
    row.policy.protocol = protocol;
    row.policy.access = EndpointAccess::open;
    row.policy.timeout = seconds(20);
    row.policy.min = static_cast<std::uint32_t>(addresses.size());
    for (const auto& address : addresses)
      row.replicas.push_back({.job = 100 + row.replicas.size(),
                              .revision = 1,
                              .address = address,
                              .job_state = JobState::running,
                              .task_state = TaskState::running});
    t.endpoints = {row};
    gateway->take_table(t);
    EXPECT_TRUE(run_until([&] {
      return gateway->find("rpc")->figures().ready == addresses.size();
    })) << "the gRPC health protocol";
  }
  static h2::Fields call(h2::Fields more = {{"billow-endpoint", "rpc"}}) {
    more.insert(more.begin(), {{"content-type", "application/grpc"}, {"te", "trailers"}});
    return h2::request("POST", "/pkg.Service/Method", more);
  }
  Http2Replica replica;
};

}  // namespace
}  // namespace billow::gateway
