#include "client/frame/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"

namespace billow::client {
namespace {

constexpr Duration redraw_every = milliseconds(100);
constexpr Duration rate_window = seconds(8);
constexpr std::size_t bar_columns_max = 30;

std::string short_time(double seconds) {
  const auto s = static_cast<std::int64_t>(std::min(seconds + 0.5, 8.64e8));
  if (s < 60)
    return fmt::format("{} s", s);
  if (s < 3600)
    return fmt::format("{} min {:02} s", s / 60, s % 60);
  if (s < 86400)
    return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {:02} h", s / 86400, s / 3600 % 24);
}
std::string amount(double n, ProgressUnit unit) {
  return unit == ProgressUnit::bytes ? format_bytes(static_cast<std::uint64_t>(n))
         : n < 10 && n != static_cast<double>(static_cast<std::int64_t>(n))
             ? fmt::format("{:.1f}", n)
             : fmt::format("{:.0f}", n);
}

}  // namespace

std::string progress_line(const ProgressState& s, std::size_t columns) {
  std::string figures;
  if (s.total)
    figures = fmt::format("{} of {}", amount(static_cast<double>(s.done), s.unit),
                          amount(static_cast<double>(s.total), s.unit));
  else if (s.done)
    figures = amount(static_cast<double>(s.done), s.unit);
  if (s.per_second > 0)
    figures += fmt::format("{}{}/s", figures.empty() ? "" : ", ", amount(s.per_second, s.unit));
  if (s.total && s.per_second > 0 && s.done < s.total)
    figures +=
        fmt::format(", {} left", short_time(static_cast<double>(s.total - s.done) / s.per_second));
  else if (s.elapsed.ns > 0 && (!s.total || s.done < s.total))
    figures += fmt::format("{}{}", figures.empty() ? "" : ", ", short_time(s.elapsed.seconds()));
  if (!s.note.empty())
    figures += ", " + s.note;
  const std::string what = printable(s.what);
  const std::size_t taken = display_width(what) + display_width(figures) + 5;
  if (!s.total || columns < taken + 8)
    return clipped(fmt::format("{}  {}", what, figures), columns);
  const std::size_t bar = std::min(bar_columns_max, columns - taken);
  const auto full = static_cast<std::size_t>(
      static_cast<double>(bar) *
      std::min(1.0, static_cast<double>(s.done) / static_cast<double>(s.total)));
  return fmt::format("{} [{}{}] {}", what, std::string(full, '='), std::string(bar - full, ' '),
                     figures);
}

Progress::Progress(std::string what, ProgressUnit unit) : terminal_(::isatty(STDERR_FILENO) == 1) {
  const char* term = std::getenv("TERM");
  if (term && std::string_view(term) == "dumb")
    terminal_ = false;
  state_.what = std::move(what);
  state_.unit = unit;
  began_ = window_at_ = system_clock().steady();
}
Progress::~Progress() {
  if (drawn_)
    (void)write_all(STDERR_FILENO, "\r\x1b[K");
}

void Progress::update(std::uint64_t done, std::uint64_t total, std::string_view note) {
  if (!terminal_)
    return;
  const SteadyTime now = system_clock().steady();
  state_.done = done;
  state_.total = total;
  state_.note = note;
  state_.elapsed = now - began_;
  const Duration window = now - window_at_;
  if (window.ns > 500'000'000 && done >= window_done_)
    state_.per_second = static_cast<double>(done - window_done_) / window.seconds();
  if (window > rate_window) {
    window_at_ = now;
    window_done_ = done;
  }
  if (now - drawn_at_ < redraw_every && done != total)
    return;
  draw(now);
}

void Progress::draw(SteadyTime now) {
  drawn_at_ = now;
  drawn_ = true;
  const auto size = terminal_size(STDERR_FILENO).value_or(TerminalSize{});
  (void)write_all(
      STDERR_FILENO,
      "\r" + progress_line(state_, static_cast<std::size_t>(size.cols > 1 ? size.cols - 1 : 79)) +
          "\x1b[K");
}

}  // namespace billow::client
