// A gateway with several loops: what holds for all requests holds whatever loop they are on. The
// clients are threads that block; the first loop and the replica run on the test's own.
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "base/crypto.h"
#include "proxy_rig.h"

namespace billow::gateway {
namespace {

constexpr std::size_t loops = 3;

// A keep-alive connection that blocks.
class Caller {
 public:
  explicit Caller(const std::string& address) {
    const auto raw = net::resolve(*net::parse_address(address));
    fd_ = Fd(::socket(reinterpret_cast<const sockaddr*>(raw->front().bytes)->sa_family,
                      SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{20, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    good_ = ::connect(fd_.get(), reinterpret_cast<const sockaddr*>(raw->front().bytes),
                      raw->front().length) == 0;
  }
  void send(const std::string& path, const std::string& fields = {}) {
    const std::string text =
        fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, fields);
    good_ = good_ && ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
                         static_cast<ssize_t>(text.size());
  }
  // The status of the answer, whose body has a length; 0: there is none.
  int read() {
    std::string got;
    while (good_) {
      if (const auto head = got.find("\r\n\r\n"); head != got.npos) {
        const auto at = got.find("Content-Length: ");
        if (at == got.npos || at > head)
          return 0;
        if (got.size() >= head + 4 + std::stoul(got.substr(at + 16)))
          return std::stoi(got.substr(9, 3));
      }
      char bytes[4096];
      const auto count = ::recv(fd_.get(), bytes, sizeof bytes, 0);
      good_ = count > 0;
      if (good_)
        got.append(bytes, static_cast<std::size_t>(count));
    }
    return 0;
  }
  int ask(const std::string& path, const std::string& fields = {}) {
    send(path, fields);
    return read();
  }
  void hang_up() { fd_.reset(); }

 private:
  Fd fd_;
  bool good_ = false;
};

// A replica that takes a moment for each request, and counts how many it has at once.
struct Several {
  int now = 0, most = 0, served = 0;
  std::vector<net::Timer> timers;
  std::vector<std::shared_ptr<net::Exchange>> hanging;
  net::ServerFixture app{[this](std::shared_ptr<net::Exchange> x) {
    serve(std::move(x));
  }};
  std::unique_ptr<Gateway> gateway;
  EndpointRow row{.name = "app"};

  explicit Several(std::uint32_t concurrency, std::vector<KeyRow> keys = {}) {
    Gateway::Options options;
    options.proxy.listen = {"127.0.0.1:0"};
    options.proxy.threads = loops;
    gateway = std::move(*Gateway::create(app.loop, std::move(options)));
    row.serving = 1;
    row.policy.min = 1;
    row.policy.concurrency = concurrency;
    row.policy.queue_max = 10'000;
    row.key_rows = std::move(keys);
    if (!row.key_rows.empty())
      row.policy.access = EndpointAccess::key;
    row.replicas = {{.job = 1,
                     .revision = 1,
                     .address = app.server->bound_addresses()[0],
                     .job_state = JobState::running,
                     .task_state = TaskState::running}};
    show();
    EXPECT_TRUE(app.run_until([&] { return figures().ready == 1; }));
  }
  ~Several() {
    hanging.clear();
    timers.clear();  // they must not outlive their loop
    gateway.reset();
  }
  void show() {
    Table table;
    table.endpoints = {row};
    gateway->take_table(table);
  }
  EndpointFigures figures() const { return gateway->figures().endpoints.at(0); }
  std::string address() const { return gateway->proxy().bound_addresses()[0]; }
  void serve(std::shared_ptr<net::Exchange> x) {
    if (x->request().path == "/")
      return x->respond(net::Response::text(200, "healthy"));
    most = std::max(most, ++now);
    if (x->request().path == "/hang") {
      hanging.push_back(std::move(x));
      return;
    }
    timers.push_back(app.loop.after(milliseconds(1), [this, x] { answer(*x); }));
  }
  void answer(net::Exchange& exchange) {
    --now;
    ++served;
    exchange.respond(net::Response::text(200, "done"));
  }
  // Runs `client` on so many threads, and the first loop until all have ended.
  void with_clients(int count, const std::function<void(int)>& client) {
    std::atomic<int> left = count;
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
      threads.emplace_back([&, i] {
        client(i);
        --left;
      });
    EXPECT_TRUE(app.loop.run_until([&] { return left == 0; }, seconds(60)));
    for (auto& thread : threads)
      thread.join();
  }
  bool idle() { return figures().in_flight == 0 && figures().held == 0; }
};

TEST(Loops, SlotsAreNeverExceeded) {
  Several rig(2);
  std::atomic<int> good = 0;
  rig.with_clients(12, [&](int) {
    Caller caller(rig.address());
    for (int i = 0; i < 20; ++i)
      good += caller.ask("/f/app/work") == 200;
  });
  EXPECT_EQ(good, 240);
  EXPECT_EQ(rig.served, 240);
  EXPECT_EQ(rig.most, 2) << "both slots are used, and no third";
  EXPECT_TRUE(rig.app.run_until([&] { return rig.idle(); }));
}

TEST(Loops, ARequestThatWaitsGetsTheSlotThatAnotherLoopFrees) {
  Several rig(1);
  std::vector<std::unique_ptr<Caller>> callers;
  for (std::size_t i = 0; i < 2 * loops; ++i) {
    callers.push_back(std::make_unique<Caller>(rig.address()));
    callers.back()->send("/f/app/hang");
    // One after the other, so that the order is known.
    ASSERT_TRUE(
        rig.app.run_until([&] { return rig.figures().held == i && rig.figures().in_flight == 1; }));
  }
  for (std::size_t i = 0; i < callers.size(); ++i) {
    ASSERT_TRUE(rig.app.run_until([&] { return rig.hanging.size() == i + 1; }));
    rig.answer(*rig.hanging.back());
    std::atomic<int> status = -1;
    std::thread reader([&] { status = callers[i]->read(); });
    EXPECT_TRUE(rig.app.run_until([&] { return status != -1; }));
    reader.join();
    EXPECT_EQ(status, 200) << "the first that came is the first that is served";
  }
  EXPECT_EQ(rig.most, 1);
}

TEST(Loops, ClientsThatDisconnectWhileTheyWaitLoseNoSlot) {
  Several rig(1);
  std::atomic<int> good = 0;
  rig.with_clients(9, [&](int number) {
    for (int i = 0; i < 20; ++i) {
      Caller caller(rig.address());
      if (number % 3 == 0) {
        good += caller.ask("/f/app/work") == 200;
        continue;
      }
      caller.send("/f/app/work");
      std::this_thread::sleep_for(std::chrono::microseconds((i * 7 + number * 13) % 40 * 50));
      caller.hang_up();
    }
  });
  EXPECT_EQ(good, 60);
  EXPECT_TRUE(rig.app.run_until([&] { return rig.idle(); })) << "every slot is given back";
  rig.with_clients(1, [&](int) { EXPECT_EQ(Caller(rig.address()).ask("/f/app/work"), 200); });
}

TEST(Loops, ALimitOfAKeyIsExact) {
  const std::string key = "bwk_of-the-test";
  // A day: a minute may end in the middle of the test.
  Several rig(100, {{.name = "caller",
                     .hash = sha256_hex(key),
                     .limits = {{.of = LimitOf::requests, .per = LimitPer::day, .amount = 100}}}});
  std::atomic<int> good = 0, limited = 0;
  rig.with_clients(8, [&](int) {
    Caller caller(rig.address());
    for (int i = 0; i < 25; ++i) {
      const int status = caller.ask("/f/app/work", "Authorization: Bearer " + key + "\r\n");
      good += status == 200;
      limited += status == 429;
    }
  });
  EXPECT_EQ(good, 100);
  EXPECT_EQ(limited, 100);
}

TEST(Loops, TablesChangeUnderLoad) {
  Several rig(4);
  std::atomic<bool> over = false;
  std::atomic<int> good = 0, gone = 0, other = 0;
  int tables = 0;
  auto timer = rig.app.loop.every(milliseconds(3), [&] {
    ++tables;
    // It moves to another name of the same address, is deleted, and comes back.
    rig.row.replicas[0].address =
        fmt::format("{}:{}", tables / 10 % 2 ? "localhost" : "127.0.0.1",
                    net::parse_address(rig.app.server->bound_addresses()[0])->port);
    if (tables % 25 == 0)
      rig.gateway->take_table({});
    rig.show();
    over = tables > 100;
  });
  rig.with_clients(6, [&](int) {
    while (!over) {
      Caller caller(rig.address());
      for (int i = 0; i < 5; ++i) {
        const int status = caller.ask("/f/app/work");
        (status == 200 ? good : status == 404 ? gone : other) += 1;
      }
    }
  });
  timer.cancel();
  EXPECT_GT(good, 0);
  EXPECT_EQ(other, 0) << "a request that waits or fails gets another try";
  EXPECT_TRUE(rig.app.run_until([&] { return rig.idle(); }));
}

TEST(Loops, ConnectionsAreDealtToAllLoopsAndEndWhenItStops) {
  Several rig(100);
  std::vector<std::unique_ptr<Caller>> callers;
  for (std::size_t i = 0; i < 2 * loops; ++i)
    callers.push_back(std::make_unique<Caller>(rig.address()));
  rig.with_clients(static_cast<int>(callers.size()), [&](int i) {
    EXPECT_EQ(callers[static_cast<std::size_t>(i)]->ask("/f/app/work"), 200);
  });
  EXPECT_EQ(rig.gateway->proxy().connections(), 2u) << "the first loop has its part";
  EXPECT_FALSE(rig.gateway->deserted());
  rig.gateway->stop();
  EXPECT_TRUE(rig.app.run_until([&] { return rig.gateway->deserted(); }));
}

TEST(Loops, AReplicaLivesIfAnyLoopHasAConnectionToIt) {
  const auto listener = net::listen_on({.host = "127.0.0.1", .port = 0, .unix_path = {}});
  auto upstream = *Upstream::create(1, listener->bound.text());
  EXPECT_FALSE(upstream->has_open_socket());
  Fd ours = *net::start_connect(upstream->address);
  upstream->opened(ours.get());
  Fd theirs;
  net::Loop loop;
  ASSERT_TRUE(loop.run_until(
      [&] {
        if (!theirs)
          theirs = Fd(::accept(listener->fd.get(), nullptr, nullptr));
        return theirs && upstream->has_open_socket();
      },
      seconds(20)));
  theirs.reset();
  EXPECT_TRUE(loop.run_until([&] { return !upstream->has_open_socket(); }, seconds(20)))
      << "the replica has closed it";
  upstream->left(ours.get());
}

}  // namespace
}  // namespace billow::gateway
