// Jobs through the whole head: submitted over HTTP, journalled with fsync, planned, and their start
// orders received by the agents of a fleet. The head is the real one, in a process of its own; the
// agents are sockets that speak the protocol and start nothing. A job counts when its start order
// has arrived, which the head lets go only after its events are durable. Runs on the disk of TMPDIR
// (or /tmp): a tmpfs there would measure no fsync.
//
// Client and head share the machine, so besides the rate as seen the processor time of the head's
// busiest thread is reported: jobs for one second of it are what a core of its own would carry.
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "core/wire/agent_v1.h"
#include "net/address.h"
#include "net/http/http_client.h"
#include "net/loop.h"
#include "server/run_head.h"

namespace {
using namespace billow;
using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

[[noreturn]] void die(const std::string& why) {
  fmt::print(stderr, "bench_head: {}\n", why);
  std::exit(1);
}

// Processor seconds of each thread of the process.
std::vector<double> thread_seconds(pid_t pid) {
  std::vector<double> out;
  const std::string dir = fmt::format("/proc/{}/task", pid);
  DIR* tasks = ::opendir(dir.c_str());
  if (!tasks)
    return out;
  while (const dirent* entry = ::readdir(tasks)) {
    std::ifstream file(dir + "/" + entry->d_name + "/schedstat");
    double ns = 0;
    if (file >> ns)
      out.push_back(ns / 1e9);
  }
  ::closedir(tasks);
  return out;
}
double busiest(pid_t pid) {
  double most = 0;
  for (double s : thread_seconds(pid))
    most = std::max(most, s);
  return most;
}

class BenchHead {
 public:
  explicit BenchHead(int nodes) {
    const char* tmp = ::getenv("TMPDIR");
    std::string pattern = std::string(tmp ? tmp : "/tmp") + "/billow-bench-XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    int ready[2];
    if (::pipe(ready) != 0)
      die("no pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ready[0]);
      if (!std::freopen((dir_ + "/head.log").c_str(), "w", stderr))
        ::_exit(1);
      const Status ran = server::run_head({.data_dir = dir_,
                                           .listen = {"127.0.0.1:0"},
                                           .ready_fd = ready[1],
                                           .local_agent = false});
      if (!ran)
        fmt::print(stderr, "{}\n", ran.error().message);
      ::_exit(ran ? 0 : 1);
    }
    ::close(ready[1]);
    char line[8];
    if (::read(ready[0], line, sizeof line) <= 0)
      die("the head does not come up");
    ::close(ready[0]);
    endpoint_ = *net::parse_endpoint("unix:" + dir_ + "/head.sock");
    token_ = std::string(trim(*read_file(dir_ + "/token", 4096)));
    client_ = std::move(*net::HttpClient::create(loop_, {}));
    join(nodes);
    fleet_ = std::thread(
        [this] { loop_.run(); });  // the agents go on, however busy the submitting side is
  }
  ~BenchHead() {
    loop_.stop();
    fleet_.join();
    agents_.clear();
    client_.reset();
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
    (void)remove_tree(dir_);
  }

  // Waits until so many start orders have arrived in all.
  bool wait_started(std::int64_t count, double patience_s) const {
    for (const auto begin = Clock::now(); started_ < count; ::usleep(500)) {
      if (since(begin) > patience_s)
        return false;
    }
    return true;
  }
  std::int64_t started() const { return started_; }
  pid_t pid() const { return pid_; }
  const net::Endpoint& endpoint() const { return endpoint_; }

  std::string request(const std::string& body) const {
    return fmt::format(
        "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: "
        "application/json\r\nContent-Length: {}\r\n\r\n{}",
        token_, body.size(), body);
  }

 private:
  void join(int nodes) {
    const std::string token(trim(*read_file(dir_ + "/node-token", 4096)));
    int welcome = 0;
    for (int i = 1; i <= nodes; ++i) {
      net::ClientRequest request;
      request.endpoint = endpoint_;
      request.target = "/v1/agent";
      request.headers.set("Authorization", "Bearer " + token);
      wire::agent_v1::Hello hello;
      hello.sent_at = {i};
      hello.offer = {.name = fmt::format("n{}", i),
                     .boot_id = fmt::format("boot-{}", i),
                     .version = "bench",
                     .gpus = {},
                     .cpu_milli = 128000,
                     .mem_mib = 1 << 20,
                     .labels = {},
                     .simulated = true,
                     .arch = "x86_64"};
      for (int g = 0; g < 8; ++g)
        hello.offer.gpus.push_back({.index = g,
                                    .uuid = fmt::format("GPU-{}-{}", i, g),
                                    .vendor = "nvidia",
                                    .model = "NVIDIA H100",
                                    .type = "H100",
                                    .mem_mib = 80 << 10,
                                    .nvlink_domain = 0});
      calls_.push_back(client_->connect_websocket(
          std::move(request),
          {.message_bytes_max = limits::agent_frame_bytes_max, .queue_bytes_max = 64 << 20},
          [this, hello, &welcome](Result<std::shared_ptr<net::WebSocket>> socket) {
            if (!socket)
              die("an agent cannot connect: " + socket.error().message);
            auto ws = *socket;
            ws->on_message([this, &welcome](std::string_view frame, bool) {
              if (frame.find("\"type\":\"start\"") != frame.npos)
                ++started_;
              else if (frame.find("\"type\":\"welcome\"") != frame.npos)
                ++welcome;
            });
            ws->on_close([](const net::WebSocket::Closed&) {});
            ws->send_binary(wire::agent_v1::encode(hello));
            agents_.push_back(std::move(ws));
          }));
      if (i % 64 == 0)
        loop_.run_until([&] { return welcome == i; }, seconds(60));
    }
    if (!loop_.run_until([&] { return welcome == nodes; }, seconds(60)))
      die("the fleet does not come together");
    beat_ = loop_.every(limits::agent_heartbeat, [this] {
      const std::string beat = wire::agent_v1::encode(wire::agent_v1::Heartbeat{});
      for (const auto& ws : agents_)
        ws->send_binary(beat);
    });
  }

  std::string dir_, token_;
  pid_t pid_ = -1;
  net::Loop loop_;
  net::Endpoint endpoint_;
  std::unique_ptr<net::HttpClient> client_;
  std::vector<std::shared_ptr<net::HttpClient::Call>> calls_;
  std::vector<std::shared_ptr<net::WebSocket>> agents_;
  net::Timer beat_;
  std::thread fleet_;
  std::atomic<std::int64_t> started_ = 0;
};

bool json = false;
void report(
    const std::string& name, std::int64_t jobs, double seconds, double thread_s, double rss_mib) {
  if (json) {
    Json j = Json::object({{"bench", name},
                           {"jobs", jobs},
                           {"jobs_per_s", jobs / seconds},
                           {"jobs_per_head_core_s", jobs / thread_s},
                           {"rss_mib", rss_mib}});
    fmt::print("{}\n", j.dump());
  } else {
    fmt::print("{:<52} jobs_per_s {:.0f}  per_second_of_the_head's_thread {:.0f}  rss_mib {:.0f}\n",
               name, jobs / seconds, jobs / thread_s, rss_mib);
  }
  std::fflush(stdout);
}
double rss_mib(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:"))
      return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

constexpr const char* spec =
    R"("argv":["true"],"resources":{"gpus":1,"share":{"milli":100,"mem_mib":0},)"
    R"("cpu_milli":100,"mem_mib":64})";

// So many clients, each of which submits one job after the other on a connection of its own.
void submits(BenchHead& head, int clients, std::int64_t jobs) {
  const std::string request = head.request(fmt::format(R"({{"spec":{{{}}}}})", spec));
  std::vector<Fd> fds;
  std::vector<pollfd> polls;
  for (int i = 0; i < clients; ++i) {
    fds.push_back(std::move(*net::start_connect(net::resolve(head.endpoint().address)->front())));
    pollfd p{fds.back().get(), POLLOUT, 0};
    ::poll(&p, 1, 1000);
    polls.push_back({fds.back().get(), POLLIN, 0});
  }
  const std::int64_t before = head.started();
  const double cpu_before = busiest(head.pid());
  const auto begin = Clock::now();
  std::int64_t sent = 0, answers = 0;
  char buffer[8192];
  const auto send = [&](int fd) {
    if (sent == jobs)
      return;
    if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size()))
      die("cannot submit");
    ++sent;
  };
  for (const pollfd& p : polls)
    send(p.fd);
  while (answers < jobs) {
    if (since(begin) > 300)
      die("the head is too slow");
    if (::poll(polls.data(), polls.size(), 100) > 0) {
      for (pollfd& p : polls) {
        if (!(p.revents & POLLIN))
          continue;
        const ssize_t n = ::recv(p.fd, buffer, sizeof buffer, 0);
        if (n <= 0)
          die("the head hung up");
        if (std::string_view(buffer, static_cast<std::size_t>(n)).find(" 201 ") ==
            std::string_view::npos)
          die(std::string(buffer, static_cast<std::size_t>(n)));
        ++answers;
        send(p.fd);
      }
    }
  }
  if (!head.wait_started(before + jobs, 60))
    die(fmt::format("only {} of {} jobs were started", head.started() - before, jobs));
  report(fmt::format("{} clients, one job a request", clients), jobs, since(begin),
         busiest(head.pid()) - cpu_before, rss_mib(head.pid()));
}

void array(BenchHead& head, std::int64_t jobs) {
  const std::string request = head.request(
      fmt::format(R"({{"spec":{{{},"array":{{"first":0,"last":{},"step":1}}}}}})", spec, jobs - 1));
  const Fd fd = std::move(*net::start_connect(net::resolve(head.endpoint().address)->front()));
  pollfd p{fd.get(), POLLOUT, 0};
  ::poll(&p, 1, 1000);
  const std::int64_t before = head.started();
  const double cpu_before = busiest(head.pid());
  const auto begin = Clock::now();
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) <= 0)
    die("cannot submit");
  if (!head.wait_started(before + jobs, 120))
    die(fmt::format("only {} of {} elements were started", head.started() - before, jobs));
  report("one array", jobs, since(begin), busiest(head.pid()) - cpu_before, rss_mib(head.pid()));
}

}  // namespace

int main(int argc, char** argv) {
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    json |= std::string_view(argv[i]) == "--json";
    quick |= std::string_view(argv[i]) == "--quick";
  }
  ::signal(SIGPIPE, SIG_IGN);
  const int nodes = quick ? 128 : 512;
  const std::int64_t jobs = quick ? 4'000 : 16'000;
  {
    BenchHead head(nodes);
    submits(head, 64, jobs);
  }
  {
    BenchHead head(nodes);
    array(head, jobs);
  }
}
