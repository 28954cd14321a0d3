// top: GPUs, jobs, queue and spend, live in a terminal. One thread reads the head's stream, this
// one draws and listens to keys; they share the view behind a lock. Without a terminal, or with
// --once, one picture is printed and that is all.
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include <fmt/format.h>

#include "base/sync.h"
#include "base/text.h"
#include "client/fleet/top_view.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/terminal.h"
#include "net/http/sse.h"

namespace billow::client {
namespace {

constexpr OptionSpec top_options[] = {{"once", 0, nullptr, "print once and exit"}};
constexpr Duration redraw = milliseconds(1000);

class Screen {
 public:
  Screen() { print("\x1b[?1049h\x1b[?25l\x1b[2J"); }
  ~Screen() { print("\x1b[?25h\x1b[?1049l"); }
};

// One key: a letter, or an escape sequence as a whole. A lone ESC is one too.
std::vector<std::string> keys_of(std::string_view bytes) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < bytes.size();) {
    std::size_t n = 1;
    if (bytes[i] == '\x1b' && i + 1 < bytes.size() &&
        (bytes[i + 1] == '[' || bytes[i + 1] == 'O')) {
      n = 2;
      while (i + n < bytes.size() && (bytes[i + n] < 0x40 || bytes[i + n] > 0x7e))
        ++n;
      n = std::min(n + 1, bytes.size() - i);
    } else {
      while (i + n < bytes.size() && (static_cast<unsigned char>(bytes[i + n]) & 0xC0) == 0x80)
        ++n;
    }
    out.emplace_back(bytes.substr(i, n));
    i += n;
  }
  return out;
}

int once(Client& client) {
  TopView view;
  bool complete = false;
  net::SseParser parser([&](const net::SseEvent& event) {
    const auto piece = parse_json(event.data);
    if (!piece || event.event != "live")
      return;
    view.take(*piece);
    complete = complete || piece->find("gpus") || (*piece)["summary"]["gpus"].int_or(-1) == 0;
  });
  const auto status = client.stream("/v1/live", [&](std::string_view data) {
    return parser.feed(data).has_value() && !complete;
  });
  if (!complete && !status)
    return report(status.error());
  std::string text = view.frame({.rows = 50, .cols = 100}, now(), false);
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 3, "\x1b[K") == 0)
      i += 2;
    else if (text[i] != '\r')
      plain += text[i];
  }
  // The frame fills a screen: its empty rows stand before the last line.
  std::string out;
  for (const std::string& line : split(plain, '\n'))
    if (!trim(line).empty() || !out.ends_with("\n\n"))
      out += line + "\n";
  while (out.ends_with("\n\n"))
    out.pop_back();
  print(out);
  return 0;
}

// What the reading thread and the screen share.
struct Live {
  billow::Sync<TopView> view;  // client::Sync is another type
  std::atomic<bool> done = false, fresh = true;
  std::optional<Error> refused;  // written before `done`
};

// Follows the head's stream until the screen is closed; reconnects when the head is away.
void follow(Client& client, Live& live) {
  while (!live.done) {
    bool first = true;
    net::SseParser parser([&](const net::SseEvent& event) {
      const auto piece = parse_json(event.data);
      if (!piece || event.event != "live")
        return;
      auto shared = live.view.lock();
      if (std::exchange(first, false))
        shared->reset();
      shared->take(*piece);
      live.fresh = true;
    });
    const auto status = client.stream(
        "/v1/live",
        [&](std::string_view data) { return !live.done && parser.feed(data).has_value(); }, {},
        seconds(30));
    if (live.done)
      return;
    if (!status && !is_away(status.error())) {
      live.refused = status.error();
      live.done = true;
      return;
    }
    live.view.lock()->set_away(true);
    live.fresh = true;
    for (int i = 0; i < 10 && !live.done; ++i)
      ::poll(nullptr, 0, 100);
    (void)client.find_again();
  }
}

void take_keys(Live& live) {
  char buffer[64];
  const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof(buffer));
  if (got <= 0)
    live.done = true;
  for (const std::string& key :
       keys_of({buffer, static_cast<std::size_t>(std::max<ssize_t>(0, got))}))
    if (live.view.lock()->key(key))
      live.done = true;
  live.fresh = true;
}

// Draws and takes keys until the user quits or the head refuses.
void show_screen(Live& live, SignalQueue& signals) {
  Screen screen;
  SteadyTime drawn;
  while (!live.done) {
    const SteadyTime at = system_clock().steady();
    if (live.fresh.exchange(false) || at - drawn > redraw) {
      drawn = at;
      const auto size = terminal_size(STDOUT_FILENO).value_or(TerminalSize{});
      print("\x1b[H" + live.view.lock()->frame({size.rows, size.cols}, now(), true));
    }
    pollfd watched[] = {{STDIN_FILENO, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    ::poll(watched, 2, 250);
    while (const int signal = signals.next()) {
      if (signal != SIGWINCH) {
        live.done = true;
        continue;
      }
      print("\x1b[2J");
      live.fresh = true;
    }
    if (watched[0].revents & (POLLIN | POLLHUP))
      take_keys(live);
  }
}

int cmd_top(const Parsed& parsed) {
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  if (parsed.has("once") || !::isatty(STDIN_FILENO) || !::isatty(STDOUT_FILENO))
    return once(*client);
  auto raw = RawMode::enter(STDIN_FILENO);
  if (!raw)
    return report(raw.error());
  auto signals = SignalQueue::create();
  if (!signals)
    return report(signals.error());
  Live live;
  std::thread reader([&] { follow(*client, live); });
  show_screen(live, *signals);
  { const RawMode given_back = std::move(*raw); }
  if (live.refused) {
    reader.join();
    return report(*live.refused);
  }
  std::_Exit(0);  // the reader may block until the stream's next sign of life; do not wait for it
}

}  // namespace

void add_top_commands(CommandTable& table) {
  table.push_back({.name = "top",
                   .summary = "watch GPUs, jobs, queue and spending live",
                   .example = "billow top\nbillow top --once",
                   .run = cmd_top,
                   .details = "Keys: q quit, s sort, r reverse, / filter, t show all, running, "
                              "waiting or idle, n one line per node, ? help.",
                   .options = {top_options},
                   .group = "machines",
                   .prints_json = false});
}

}  // namespace billow::client
