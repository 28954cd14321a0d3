#include "client/top/log_pane.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/table.h"

namespace billow::client::top {
namespace {

constexpr int progress_lines = 40;
constexpr std::size_t tab_columns = 8;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The number that ends before `end`; its place is where it begins.
std::optional<double> number_before(std::string_view line, std::size_t end, std::size_t& begin) {
  begin = end;
  while (begin > 0 && (is_digit(line[begin - 1]) || line[begin - 1] == '.'))
    --begin;
  const auto n = parse_double(line.substr(begin, end - begin), 0, 1e15);
  return n ? std::optional(*n) : std::nullopt;
}
std::optional<double> number_after(std::string_view line, std::size_t begin, std::size_t& end) {
  end = begin;
  while (end < line.size() && is_digit(line[end]))
    ++end;
  const auto n = parse_double(line.substr(begin, end - begin), 0, 1e15);
  return n ? std::optional(*n) : std::nullopt;
}

// "15%|###": how tqdm draws.
std::optional<LogProgress> percent_bar(std::string_view line) {
  const auto at = line.rfind("%|");
  if (at == std::string_view::npos)
    return std::nullopt;
  std::size_t begin = 0;
  const auto n = number_before(line, at, begin);
  if (!n || *n > 100)
    return std::nullopt;
  return LogProgress{*n / 100, fmt::format("{} %", line.substr(begin, at - begin))};
}

// "step 30/200", "[30/200]", "Epoch: 3/10". A date or a path with a slash is none of these.
std::optional<LogProgress> counted(std::string_view line) {
  for (auto slash = line.rfind('/'); slash != std::string_view::npos && slash > 0;
       slash = slash ? line.rfind('/', slash - 1) : std::string_view::npos) {
    std::size_t begin = 0, end = 0;
    const auto done = number_before(line, slash, begin);
    const auto all = number_after(line, slash + 1, end);
    if (!done || !all || *all < 1 || *done > *all || (end < line.size() && line[end] == '/'))
      continue;
    const std::string before = lower(trim(line.substr(0, begin)));
    const bool named = before.ends_with("step") || before.ends_with("epoch") ||
                       before.ends_with("iter") || before.ends_with("iteration") ||
                       before.ends_with("batch") || before.ends_with(":") || before.ends_with("[");
    if (named)
      return LogProgress{*done / *all, std::string(line.substr(begin, end - begin))};
  }
  return std::nullopt;
}

}  // namespace

const std::string& LogLines::at(int line) const {
  return line < static_cast<int>(lines_.size()) ? lines_[static_cast<std::size_t>(line)] : open_;
}

void LogLines::end_line() {
  bytes_ += open_.size();
  lines_.push_back(valid_utf8(open_) ? std::move(open_) : repaired_utf8(open_));
  open_.clear();
  rewrites_ = false;
  while (lines_.size() > log_lines_max || bytes_ > log_bytes_max) {
    bytes_ -= std::min(bytes_, lines_.front().size());
    lines_.pop_front();
    ++dropped_;
  }
}

void LogLines::put(char c) {
  if (std::exchange(rewrites_, false))
    open_.clear();
  if (c == '\t')
    open_.append(tab_columns - open_.size() % tab_columns, ' ');
  else if (static_cast<unsigned char>(c) >= 32 && c != 0x7f)
    open_ += c;
  // A line without end is shown in pieces, cut between characters.
  if (open_.size() >= log_line_bytes_max && (static_cast<unsigned char>(c) & 0x80) == 0)
    end_line();
  else if (open_.size() >= log_line_bytes_max * 2)
    end_line();
}

void LogLines::take(std::string_view bytes) {
  for (const char c : bytes) {
    switch (escape_) {
      case Escape::none:
        if (c == '\x1b')
          escape_ = Escape::begun;
        else if (c == '\n')
          end_line();
        else if (c == '\r')
          rewrites_ = true;
        else if (c == '\b' && !open_.empty() && (static_cast<unsigned char>(open_.back()) < 0x80))
          open_.pop_back();
        else
          put(c);
        break;
      case Escape::begun:
        escape_ = c == '['               ? Escape::sequence
                  : c == ']' || c == 'P' ? Escape::text
                  : c == '(' || c == ')' ? Escape::sequence
                                         : Escape::none;
        break;
      case Escape::sequence:
        if (c >= 0x40 && c <= 0x7e)
          escape_ = Escape::none;
        break;
      case Escape::text:
        escape_ = c == 7 ? Escape::none : c == '\x1b' ? Escape::text_end : Escape::text;
        break;
      case Escape::text_end:
        escape_ = Escape::none;
        break;
    }
  }
}

std::optional<int> LogLines::find(std::string_view text, int from, bool down) const {
  const int count = size();
  if (text.empty() || count == 0)
    return std::nullopt;
  const std::string needle = lower(text);
  for (int i = 0; i < count; ++i) {
    const int line = ((from + (down ? i : -i)) % count + count) % count;
    if (lower(at(line)).find(needle) != std::string::npos)
      return line;
  }
  return std::nullopt;
}

std::vector<std::string> rows_of_line(std::string_view raw, int width) {
  const std::string text = printable(raw);
  const auto wide = static_cast<std::size_t>(std::max(2, width));
  std::vector<std::string> out(1);
  std::size_t at = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t bytes = std::max<std::size_t>(1, utf8_letter(text, i));
    const std::string_view letter = std::string_view(text).substr(i, bytes);
    const std::size_t columns = display_width(letter);
    if (at + columns > wide) {
      out.emplace_back();
      at = 0;
    }
    out.back() += letter;
    at += columns;
    i += bytes;
  }
  return out;
}

std::optional<LogProgress> progress_in(const LogLines& log) {
  for (int line = log.size() - 1; line >= std::max(0, log.size() - progress_lines); --line) {
    const std::string& text = log.at(line);
    if (auto found = percent_bar(text))
      return found;
    if (auto found = counted(text))
      return found;
  }
  return std::nullopt;
}

}  // namespace billow::client::top
