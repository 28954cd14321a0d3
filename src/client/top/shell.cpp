#include "client/top/shell.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <thread>

#include <fmt/format.h>

#include "base/sync.h"
#include "client/frame/console.h"
#include "client/frame/terminal.h"
#include "client/jobs/log_stream.h"
#include "net/http/sse.h"

namespace billow::client::top {
namespace {

constexpr int tick_ms = 250;
constexpr int escape_ms = 60;  // a lone ESC is the key if nothing follows for so long
constexpr Duration live_quiet_max = seconds(30);
constexpr Duration fetch_timeout = seconds(20);
constexpr const char* log_tail_bytes = "1048576";
// A job that writes faster than it can be read is shown in pieces of this size.
constexpr std::size_t log_piece_bytes_max = 4 << 20;

// The alternate screen without a cursor, mouse reports (SGR), marks around pasted text.
constexpr std::string_view screen_on =
    "\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[2J";
constexpr std::string_view screen_off =
    "\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[0m\x1b[?25h\x1b[?1049l";

std::atomic<bool> screen_is_on{false};
void (*abort_handler)(int) = nullptr;  // of RawMode: restores the terminal's modes

// For signal handlers too: only write(2).
void leave_screen() {
  if (screen_is_on.exchange(false))
    (void)!::write(STDOUT_FILENO, screen_off.data(), screen_off.size());
}

void on_crash(int number) {
  leave_screen();
  if (abort_handler && abort_handler != SIG_DFL && abort_handler != SIG_IGN)
    abort_handler(number);
  ::signal(number, SIG_DFL);
  ::raise(number);
}

class AltScreen {
 public:
  AltScreen() {
    static const bool registered = [] {
      std::atexit(leave_screen);
      const auto before = ::signal(SIGABRT, on_crash);
      abort_handler = before == SIG_ERR ? nullptr : before;
      for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL})
        ::signal(number, on_crash);
      return true;
    }();
    (void)registered;
    screen_is_on = true;
    print(screen_on);
  }
  ~AltScreen() { leave_screen(); }
};

// What the threads share. It lives as long as the program: a thread may wait for the head when the
// screen is closed.
struct Shared {
  billow::Sync<std::deque<Event>> events;
  struct Work {
    std::deque<Effect> requests;
    std::deque<ReadLog> logs;
  };
  billow::Sync<Work> work;
  std::condition_variable changed;
  std::atomic<bool> done{false};
  std::optional<Error> refused;  // written before `done`
  int wake[2] = {-1, -1};

  void push(Event event) {
    events.lock()->push_back(std::move(event));
    (void)!::write(wake[1], "", 1);
  }
};
using SharedPtr = std::shared_ptr<Shared>;

// Follows the head's stream; reconnects when the head is away.
void follow_live(Client client, const SharedPtr& shared) {
  while (!shared->done) {
    bool first = true;
    net::SseParser parser([&](const net::SseEvent& event) {
      auto piece = parse_json(event.data);
      if (!piece || event.event != "live")
        return;
      if (std::exchange(first, false))
        shared->push(LiveBegins{});
      shared->push(LivePiece{std::move(*piece)});
    });
    const Status status = client.stream(
        "/v1/live",
        [&](std::string_view data) { return !shared->done && parser.feed(data).has_value(); }, {},
        live_quiet_max);
    if (shared->done)
      return;
    if (!status && !is_away(status.error())) {
      shared->refused = status.error();
      shared->done = true;
      shared->push(HeadAway{});
      return;
    }
    shared->push(HeadAway{});
    for (int i = 0; i < 10 && !shared->done; ++i)
      ::poll(nullptr, 0, 100);
    (void)client.find_again();
  }
}

Event answer_to(Client& client, const Effect& effect) {
  if (const auto* act = std::get_if<Act>(&effect))
    return Acted{act->action, client.call(net::Method::post, act->action.path, act->action.body, {},
                                          fetch_timeout)};
  const auto& fetch = std::get<Fetch>(effect);
  return Fetched{fetch.slot, fetch.path,
                 client.call(net::Method::get, fetch.path, {}, {}, fetch_timeout)};
}

// Asks and acts, one request after the other. After a failure the head may have moved.
void serve_requests(Client client, const SharedPtr& shared) {
  for (;;) {
    Effect effect;
    {
      auto work = shared->work.lock();
      shared->changed.wait(work.mutex_lock(),
                           [&] { return shared->done || !work->requests.empty(); });
      if (shared->done)
        return;
      effect = std::move(work->requests.front());
      work->requests.pop_front();
    }
    Event event = answer_to(client, effect);
    const auto* fetched = std::get_if<Fetched>(&event);
    const auto* acted = std::get_if<Acted>(&event);
    const bool away = (fetched && !fetched->answer && is_away(fetched->answer.error())) ||
                      (acted && !acted->answer && is_away(acted->answer.error()));
    shared->push(std::move(event));
    if (away)
      (void)client.find_again();
  }
}

LogRead read_log(Client& client, const ReadLog& wanted) {
  LogRead out{.generation = wanted.generation};
  LogReader reader(client,
                   {.job = wanted.job,
                    .rank = wanted.rank,
                    .tail = log_tail_bytes,
                    .follow = false,
                    .away_max = {}},
                   [&](const LogPiece& piece) {
                     out.bytes += piece.bytes;
                     if (out.bytes.size() > 2 * log_piece_bytes_max)
                       out.bytes.erase(0, out.bytes.size() - log_piece_bytes_max);
                   });
  reader.on_gap([&](std::uint64_t bytes) { out.skipped_bytes += bytes; });
  reader.begin_at(wanted.offset);
  out.status = reader.run();
  out.resume_at = reader.resume_at();
  return out;
}

void serve_logs(Client client, const SharedPtr& shared) {
  for (;;) {
    ReadLog wanted;
    {
      auto work = shared->work.lock();
      shared->changed.wait(work.mutex_lock(), [&] { return shared->done || !work->logs.empty(); });
      if (shared->done)
        return;
      wanted = std::move(work->logs.back());  // the newest; the screen has left the others
      work->logs.clear();
    }
    LogRead read = read_log(client, wanted);
    const bool away = !read.status && is_away(read.status.error());
    shared->push(std::move(read));
    if (away)
      (void)client.find_again();
  }
}

class Shell {
 public:
  Shell(State state, ShellOptions options, SharedPtr shared)
      : state_(std::move(state)), options_(std::move(options)), shared_(std::move(shared)) {}

  void take(const Event& event) {
    for (Effect& effect : update(state_, event))
      do_effect(std::move(effect));
    fresh_ = true;
  }
  void take_queued() {
    std::deque<Event> events;
    std::swap(events, *shared_->events.lock());
    for (const Event& event : events)
      take(event);
  }
  void tick() { take(Tick{now().ns / 1'000'000}); }
  Result<int> loop(SignalQueue& signals);
  State& state() { return state_; }

 private:
  void do_effect(Effect effect);
  void draw_changes();
  void take_size();
  void take_keys();
  Status pause();
  State state_;
  ShellOptions options_;
  SharedPtr shared_;
  InputDecoder decoder_;
  std::optional<Canvas> drawn_;
  std::optional<RawMode> raw_;
  std::optional<AltScreen> screen_;
  bool fresh_ = true, quit_ = false, pauses_ = false;
  int code_ = 0;
};

void Shell::do_effect(Effect effect) {
  if (std::holds_alternative<Quit>(effect)) {
    quit_ = true;
  } else if (std::holds_alternative<PauseProgram>(effect)) {
    pauses_ = true;
  } else {
    auto work = shared_->work.lock();
    if (auto* log = std::get_if<ReadLog>(&effect))
      work->logs.push_back(std::move(*log));
    else if (std::holds_alternative<Act>(effect))
      work->requests.push_front(std::move(effect));
    else
      work->requests.push_back(std::move(effect));
    shared_->changed.notify_all();
  }
}

// Only the lines that differ from those on the screen are written.
void Shell::draw_changes() {
  Screen screen = draw(state_);
  const bool whole = !drawn_ || drawn_->size() != screen.canvas.size();
  std::string out = whole ? "\x1b[2J" : "";
  for (int row = 0; row < screen.canvas.size().rows; ++row)
    if (whole || !screen.canvas.same_line(*drawn_, row))
      out += fmt::format("\x1b[{};1H{}\x1b[K", row + 1,
                         screen.canvas.painted_line(row, options_.colours));
  if (!out.empty())
    print(out);
  drawn_ = std::move(screen.canvas);
}

void Shell::take_size() {
  const auto size = terminal_size(STDOUT_FILENO).value_or(TerminalSize{});
  take(Resize{{size.rows, size.cols}});
  drawn_.reset();
}

void Shell::take_keys() {
  char buffer[1024];
  const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof(buffer));
  if (got <= 0) {
    quit_ = true;
    return;
  }
  for (const Input& input : decoder_.feed({buffer, static_cast<std::size_t>(got)}))
    std::visit([&](const auto& event) { take(event); }, input);
}

// Ctrl-Z: the shell gets the terminal as it was, and this program gets it back with `fg`.
Status Shell::pause() {
  pauses_ = false;
  screen_.reset();
  raw_.reset();
  ::raise(SIGTSTP);
  raw_ = BILLOW_TRY(RawMode::enter(STDIN_FILENO));
  screen_.emplace();
  take_size();
  return {};
}

Result<int> Shell::loop(SignalQueue& signals) {
  raw_ = BILLOW_TRY(RawMode::enter(STDIN_FILENO));
  screen_.emplace();
  take_size();
  std::int64_t ticked_ms = 0, second = 0;
  while (!quit_ && !shared_->done) {
    if (const std::int64_t at = now().ns / 1'000'000; at - ticked_ms >= tick_ms || at < ticked_ms) {
      const bool was_fresh = fresh_;
      ticked_ms = at;
      tick();
      // A tick alone changes what is seen once a second.
      fresh_ = was_fresh || second != at / 1000;
      second = at / 1000;
    }
    if (std::exchange(fresh_, false))
      draw_changes();
    pollfd watched[] = {
        {STDIN_FILENO, POLLIN, 0}, {signals.fd(), POLLIN, 0}, {shared_->wake[0], POLLIN, 0}};
    if (::poll(watched, 3, decoder_.pending() ? escape_ms : tick_ms) == 0 && decoder_.pending())
      for (const Input& input : decoder_.flush())
        std::visit([&](const auto& event) { take(event); }, input);
    while (const int signal = signals.next()) {
      if (signal == SIGWINCH)
        take_size();
      else {
        quit_ = true;
        code_ = 128 + signal;
      }
    }
    if (watched[0].revents & (POLLIN | POLLHUP))
      take_keys();
    char drained[256];
    if (watched[2].revents & POLLIN)
      (void)!::read(shared_->wake[0], drained, sizeof(drained));
    take_queued();
    if (pauses_)
      BILLOW_TRY_VOID(pause());
  }
  return code_;
}

Result<SharedPtr> begin_threads(const ShellOptions& options) {
  auto shared = std::make_shared<Shared>();
  if (::pipe(shared->wake) != 0)
    return fail_errno("a pipe", errno);
  for (const int fd : shared->wake)
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
  auto live = BILLOW_TRY(Client::create(options.connect));
  auto requests = BILLOW_TRY(Client::create(options.connect));
  auto logs = BILLOW_TRY(Client::create(options.connect));
  // A thread may block until the head's next sign of life: the program does not wait for it.
  std::thread(follow_live, std::move(live), shared).detach();
  std::thread(serve_requests, std::move(requests), shared).detach();
  std::thread(serve_logs, std::move(logs), shared).detach();
  return shared;
}

}  // namespace

Result<int> run_shell(State state, const ShellOptions& options) {
  // Before the threads: a signal goes to any thread that does not block it.
  auto signals = BILLOW_TRY(SignalQueue::create());
  auto shared = BILLOW_TRY(begin_threads(options));
  int code = 0;
  {
    Shell shell(std::move(state), options, shared);
    code = BILLOW_TRY(shell.loop(signals));
  }
  if (shared->refused)
    return pass(*shared->refused);
  shared->done = true;
  shared->changed.notify_all();
  return code;
}

Result<State> look_once(State state, const ShellOptions& options) {
  auto shared = BILLOW_TRY(begin_threads(options));
  Shell shell(std::move(state), options, shared);
  const SteadyTime begin = system_clock().steady();
  const auto complete = [&] {
    const State& s = shell.state();
    for (const auto& [slot, asked] : s.asked)
      if (asked.in_flight)
        return false;
    return s.fleet.complete && !s.asked.empty() && (!s.page() || !s.log.in_flight);
  };
  while (!complete() && !shared->done && system_clock().steady() - begin < fetch_timeout) {
    pollfd watched{shared->wake[0], POLLIN, 0};
    ::poll(&watched, 1, 50);
    char drained[256];
    (void)!::read(shared->wake[0], drained, sizeof(drained));
    shell.take_queued();
    if (shell.state().fleet.complete && !shell.state().away_ms)
      shell.tick();
    if (shell.state().away_ms)
      return fail(Code::unavailable, "the head does not answer",
                  "check that it runs: billow status");
  }
  shared->done = true;
  shared->changed.notify_all();
  if (shared->refused)
    return pass(*shared->refused);
  return std::move(shell.state());
}

}  // namespace billow::client::top
