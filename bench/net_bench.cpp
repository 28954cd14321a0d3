// What the API's transport costs: small keep-alive requests on one loop thread, their latency, the
// blocking client's first request, and the fan-out of one event to a thousand followers. Client and
// server share the machine, so a figure here includes the client's own work.
#include <benchmark/benchmark.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <thread>

#include "net/http/blocking_client.h"
#include "net/http/http_client.h"
#include "net/http/http_server.h"
#include "net/http/sse.h"

namespace billow::net {
namespace {

double cpu_seconds_of(pthread_t thread) {
  clockid_t clock;
  timespec time{};
  if (::pthread_getcpuclockid(thread, &clock) == 0)
    ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

class BenchServer {
 public:
  explicit BenchServer(std::string listen = "127.0.0.1:0") {
    server_ = std::move(*HttpServer::create(
        loop_, {.listen = {std::move(listen)}}, [this](std::shared_ptr<Exchange> x) {
          if (x->request().path != "/events")
            return x->respond(Response::json(200, R"({"id":"job-1","state":"running","gpus":1})"));
          x->start_stream(200, {{"Content-Type", "text/event-stream"}});
          streams_.push_back(std::move(x));
        }));
    endpoint_ = *parse_endpoint(server_->bound_addresses()[0]);
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~BenchServer() {
    loop_.stop();
    thread_.join();
  }
  const Endpoint& endpoint() const { return endpoint_; }
  double cpu_seconds() { return cpu_seconds_of(thread_.native_handle()); }

 private:
  Loop loop_;
  std::unique_ptr<HttpServer> server_;
  std::vector<std::shared_ptr<Exchange>> streams_;
  Endpoint endpoint_;
  std::thread thread_;
};

// One request at a time: what a caller waits.
void BM_RequestLatency(benchmark::State& state) {
  BenchServer server;
  BlockingClient client({.endpoint = server.endpoint()});
  for (auto _ : state) {
    auto answer = client.get("/v1/jobs/job-1");
    if (!answer || answer->status != 200)
      state.SkipWithError("no answer");
  }
}
BENCHMARK(BM_RequestLatency)->UseRealTime()->Unit(benchmark::kMicrosecond);

// Sixteen keep-alive connections driven as raw bytes, one request in flight on each.
// `server_per_core_s` is requests for one second of the server thread's own processor time: what
// one core could serve.
void BM_KeepAliveThroughput(benchmark::State& state) {
  BenchServer server;
  constexpr std::size_t connections = 16;
  const std::string request =
      "GET /v1/jobs/job-1 HTTP/1.1\r\nHost: localhost\r\nAccept: "
      "application/json\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n";
  std::vector<Fd> fds;
  std::vector<pollfd> polls;
  for (std::size_t i = 0; i < connections; ++i) {
    fds.push_back(std::move(*start_connect(resolve(server.endpoint().address)->front())));
    pollfd p{fds.back().get(), POLLOUT, 0};
    ::poll(&p, 1, 1000);
    if (::send(fds.back().get(), request.data(), request.size(), MSG_NOSIGNAL) <= 0)
      state.SkipWithError("cannot send");
    polls.push_back({fds.back().get(), POLLIN, 0});
  }
  const double cpu_before = server.cpu_seconds();
  std::int64_t answers = 0;
  char buffer[4096];
  for (auto _ : state) {
    bool got = false;
    while (!got) {
      if (::poll(polls.data(), polls.size(), 1000) <= 0) {
        state.SkipWithError("no answer");
        break;
      }
      for (auto& p : polls) {
        if (!(p.revents & POLLIN))
          continue;
        if (::recv(p.fd, buffer, sizeof buffer, 0) <= 0 ||
            ::send(p.fd, request.data(), request.size(), MSG_NOSIGNAL) <= 0)
          state.SkipWithError("cut");
        ++answers;
        got = true;
      }
    }
  }
  state.counters["requests_s"] =
      benchmark::Counter(static_cast<double>(answers), benchmark::Counter::kIsRate);
  state.counters["server_per_core_s"] =
      static_cast<double>(answers) / (server.cpu_seconds() - cpu_before);
}
BENCHMARK(BM_KeepAliveThroughput)->UseRealTime();

// What the command line pays: a client made, connected over a Unix socket, one answer, closed.
void BM_BlockingClientFirstRequest(benchmark::State& state) {
  const std::string path = fmt::format("unix:/tmp/billow-bench-{}.sock", ::getpid());
  BenchServer server(path);
  for (auto _ : state) {
    BlockingClient client({.endpoint = server.endpoint()});
    auto answer = client.get("/v1/jobs/job-1");
    if (!answer)
      state.SkipWithError("no answer");
  }
}
BENCHMARK(BM_BlockingClientFirstRequest)->UseRealTime()->Unit(benchmark::kMicrosecond);

// One event written to a thousand streams, and read by all of them, on one thread.
void BM_EventToThousandFollowers(benchmark::State& state) {
  constexpr std::size_t followers = 1000;
  Loop loop;
  std::vector<std::shared_ptr<Exchange>> streams;
  auto server = std::move(
      *HttpServer::create(loop, {.listen = {"127.0.0.1:0"}}, [&](std::shared_ptr<Exchange> x) {
        x->start_stream(200, {});
        streams.push_back(std::move(x));
      }));
  auto client = std::move(*HttpClient::create(loop, {}));
  std::size_t received = 0;
  for (std::size_t i = 0; i < followers; ++i)
    client->fetch({.endpoint = *parse_endpoint(server->bound_addresses()[0]),
                   .on_chunk =
                       [&](std::string_view) {
                         ++received;
                       }},
                  [](Result<Response>) {});
  if (!loop.run_until([&] { return streams.size() == followers; }, seconds(20)))
    return state.SkipWithError("needs 2,100 open files");
  const std::string event = format_sse({"42", "job", R"({"id":"job-1","state":"running"})"});
  for (auto _ : state) {
    received = 0;
    for (auto& stream : streams)
      if (!stream->write(event))
        state.SkipWithError("a follower's buffer is full");
    loop.run_until([&] { return received == followers; }, seconds(20));
  }
}
BENCHMARK(BM_EventToThousandFollowers)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace billow::net

BENCHMARK_MAIN();
