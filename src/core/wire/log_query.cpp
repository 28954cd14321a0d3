#include "core/wire/log_query.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/json.h"
#include "base/text.h"
#include "core/wire/line_regex.h"
#include "core/wire/text_scan.h"

namespace billow::wire {
namespace {

constexpr std::uint64_t mark_bytes = 1u << 20;
constexpr std::size_t marks_max = 65'536;

// The text of consecutive records, with the position of each byte in the log.
class Text {
 public:
  struct Part {
    std::size_t at;       // in the text
    std::uint64_t place;  // in the log
    std::int64_t time_ns;
    LogStream stream;
  };
  std::string text;
  std::vector<Part> parts;

  // Stops at a damaged record, like for_each_record, whose calls would cost more than this loop.
  void add(const LogPiece& piece) {
    const std::string_view frames = piece.frames;
    RecordHead head;
    for (std::size_t at = 0; frames.size() - at >= sizeof(head);) {
      std::memcpy(&head, frames.data() + at, sizeof(head));
      at += sizeof(head);
      if (head.bytes > record_data_bytes_max || frames.size() - at < head.bytes)
        return;
      parts.push_back(
          {text.size(), piece.offset + at, head.wall_ns, static_cast<LogStream>(head.stream)});
      text += frames.substr(at, head.bytes);
      at += head.bytes;
    }
  }
  const Part& part_at(std::size_t at) const {
    auto above = std::upper_bound(parts.begin(), parts.end(), at,
                                  [](std::size_t v, const Part& p) { return v < p.at; });
    return *(above - 1);
  }
  std::uint64_t place_at(std::size_t at) const {
    const Part& part = part_at(at);
    return part.place + (at - part.at);
  }
  // Removes the text before `at`.
  void drop_before(std::size_t at) {
    if (at >= text.size()) {
      text.clear();
      parts.clear();
      return;
    }
    Part first = part_at(at);
    first.place += at - first.at;
    first.at = at;
    std::erase_if(parts, [&](const Part& p) { return p.at <= at; });
    parts.insert(parts.begin(), first);
    for (Part& p : parts)
      p.at -= at;
    text.erase(0, at);
  }
};

void put_line(LogAnswer& out,
              const Text& from,
              std::size_t at,
              std::size_t end,
              bool open,
              std::uint64_t number) {
  std::string_view text = std::string_view(from.text).substr(at, end - at);
  bool cut = false;
  if (text.size() > line_text_bytes_max) {
    // A progress bar is shown in its newest state.
    const std::size_t back = text.rfind('\r');
    if (back != std::string_view::npos && text.size() - back <= line_text_bytes_max)
      text.remove_prefix(back);
    text = text.substr(0, line_text_bytes_max);
    cut = true;
  }
  const Text::Part& part = from.part_at(at);
  append_format(out.lines, "{}{{\"line\":{},\"byte\":{},\"at_ms\":{},\"stream\":\"{}\",\"text\":",
                out.count == 0 ? "" : ",", number, from.place_at(at), part.time_ns / 1'000'000,
                part.stream == LogStream::err ? "err" : "out");
  append_json_string(out.lines, text);
  out.lines += open ? ",\"open\":true" : "";
  out.lines += cut ? ",\"cut\":true}" : "}";
  ++out.count;
}

// Reads a log from a mark on and gives it to a visitor line by line.
class Reader {
 public:
  Reader(LineIndex& index, const LogPieces& read, const LineIndex::Mark& from)
      : index_(index),
        read_(read),
        at_(from.offset),
        newlines_(from.newlines),
        line_start_(from.line_start) {}

  // Appends the next piece to the text; false if there is none yet.
  Result<bool> next() {
    BILLOW_TRY_VOID(read_(at_, query_piece_bytes, piece_));
    const LogPiece& piece = piece_;
    if (piece.frames.empty()) {
      at_end = true;
      return false;
    }
    if (piece.offset > at_ && text.text.empty()) {  // the rest was removed meanwhile
      index_.set_first(piece.offset);
      line_start_ = piece.offset + sizeof(RecordHead);
    }
    index_.add({piece.offset, newlines_, line_start_});
    const std::size_t before = text.text.size();
    text.add(piece);
    const std::string_view added = std::string_view(text.text).substr(before);
    newlines_ += count_newlines(added);
    if (const std::size_t last = added.rfind('\n'); last != std::string_view::npos)
      line_start_ = before + last + 1 < text.text.size() ? text.place_at(before + last + 1)
                                                         : piece.next_offset + sizeof(RecordHead);
    bytes_read += piece.frames.size();
    at_ = piece.next_offset;
    at_end = piece.at_end;
    return true;
  }
  std::uint64_t newlines() const { return newlines_; }
  std::uint64_t place() const { return at_; }
  bool tired(const LogQuery& query) const { return bytes_read >= query.bytes_per_turn; }

  Text text;  // from the beginning of a line on
  bool at_end = false;
  std::size_t bytes_read = 0;

 private:
  LineIndex& index_;
  const LogPieces& read_;
  LogPiece piece_;  // its memory is used again for each: fresh pages cost more than the search
  std::uint64_t at_, newlines_, line_start_;
};

// Counts lines up to the end of the log, or to the wanted line or position; false if its turn ends.
Result<bool> count_to(LineIndex& index,
                      const LogPieces& read,
                      const LogQuery& query,
                      std::uint64_t line,
                      std::uint64_t place,
                      std::uint64_t& newlines) {
  Reader reader(index, read, index.last());
  while (reader.newlines() + 1 < line && reader.place() < place) {
    if (reader.tired(query))
      return false;
    if (!BILLOW_TRY(reader.next()))
      break;
    reader.text.drop_before(reader.text.text.size());
  }
  newlines = reader.newlines();
  return true;
}

// Passes whole lines to `each`, which returns whether to continue; the rest stays in the text.
template <class Each>
bool take_lines(Text& text, std::uint64_t& number, Each each) {
  std::size_t at = 0;
  bool more = true;
  for (std::size_t end; more && (end = text.text.find('\n', at)) != std::string::npos;) {
    more = each(at, end, number);
    at = end + 1;
    ++number;
  }
  text.drop_before(at);
  return more;
}

// Drops the rest of a line and its newline; false if the newline has not come.
bool drop_line(Text& text, std::uint64_t& number) {
  const std::size_t newline = text.text.find('\n');
  text.drop_before(newline == std::string::npos ? text.text.size() : newline + 1);
  number += newline != std::string::npos;
  return newline != std::string::npos;
}

// A whole log may be one line. Of a progress bar the newest state is kept; false: of another line
// the beginning was shown, and the rest is passed over.
template <class Show>
bool shorten_line(Text& text, Show show) {
  const std::size_t back = text.text.rfind('\r');
  if (back != std::string::npos && back > 0) {
    text.drop_before(back);
    return true;
  }
  show(text.text.size());
  text.drop_before(text.text.size());
  return false;
}

Result<LogAnswer> run_range(const LogQuery& query, LineIndex& index, const LogPieces& read) {
  LogAnswer out;
  std::uint64_t newlines = 0, line = query.from_line;
  const bool by_line = query.tail_lines || query.from_line;
  const bool counted = BILLOW_TRY(
      count_to(index, read, query, query.tail_lines || !by_line ? UINT64_MAX : query.from_line,
               by_line ? UINT64_MAX : query.from_byte, newlines));
  if (!counted) {
    out.more = true;
    out.next_byte = query.from_byte;
    return out;
  }
  if (query.tail_lines)
    line = newlines + 2 - std::min(newlines + 1, query.tail_lines + 1);
  const LineIndex::Mark from = line ? index.before_line(line) : index.before_place(query.from_byte);
  Reader reader(index, read, from);
  std::uint64_t number = from.newlines + 1;
  // If the mark is inside a line, the rest of that line is skipped.
  const auto wanted = [&](std::size_t end) {
    return line ? number >= line : reader.text.place_at(end) >= query.from_byte;
  };
  const auto full = [&] {
    return out.count >= query.lines_max || out.lines.size() >= query_answer_bytes_max;
  };
  out.next_byte = from.line_start;
  // Of which the beginning has been shown. An answer ends after it, not in it: the next one would
  // show its beginning again, or another part of it as if it were a line.
  bool in_long_line = false;
  while (!full() || in_long_line) {
    if (!BILLOW_TRY(reader.next()))
      break;
    if (in_long_line)
      in_long_line = !drop_line(reader.text, number);
    if (!in_long_line && !full())
      take_lines(reader.text, number, [&](std::size_t at, std::size_t end, std::uint64_t n) {
        if (wanted(end))
          put_line(out, reader.text, at, end, false, n);
        return !full();
      });
    if (!full() && !in_long_line && reader.text.text.size() > line_bytes_max)
      in_long_line = !shorten_line(reader.text, [&](std::size_t end) {
        if (wanted(end - 1))
          put_line(out, reader.text, 0, end, true, number);
      });
    out.next_byte =
        reader.text.text.empty() ? reader.place() + sizeof(RecordHead) : reader.text.place_at(0);
    if (reader.at_end)
      break;
  }
  if (!full()) {
    out.end = reader.at_end;
    if (!reader.text.text.empty() && wanted(reader.text.text.size() - 1))
      put_line(out, reader.text, 0, reader.text.text.size(), true, number);
  }
  out.next_line = number;
  out.first_line = index.first_line();
  out.lost_bytes = index.first_offset();
  return out;
}

// Finds matching lines in a text that starts at the beginning of a line.
class Finder {
 public:
  static Result<Finder> create(const LogQuery& query) {
    Finder f;
    f.needle_ = Needle(query.any_case ? lower(query.text) : query.text);
    f.any_case_ = query.any_case;
    if (query.regex)
      f.regex_ = BILLOW_TRY(LineRegex::compile(query.text, query.any_case));
    return f;
  }
  // The position of the first match at or after `at`, or npos.
  Result<std::size_t> find(const std::string& text, std::size_t at) {
    if (regex_)
      return regex_->find(text, at);
    if (any_case_ && folded_of_ != text.size() + 1) {
      fold_case(text, folded_);
      folded_of_ = text.size() + 1;
    }
    return needle_.find(any_case_ ? folded_ : text, at);
  }
  void text_changed() { folded_of_ = 0; }

 private:
  Needle needle_{""};
  std::string folded_;
  std::size_t folded_of_ = 0;
  bool any_case_ = false;
  std::optional<LineRegex> regex_;
};

// The matching lines among the first `size` bytes of the text, whose first line has this number.
// Returns false when it has enough; the text then begins after the last match.
Result<bool> find_lines(LogAnswer& out,
                        const LogQuery& query,
                        Finder& finder,
                        Reader& reader,
                        std::size_t size,
                        std::uint64_t& number) {
  const std::string& text = reader.text.text;
  std::size_t counted = 0;
  finder.text_changed();
  for (std::size_t at = 0;;) {
    at = BILLOW_TRY(finder.find(text, at));
    if (at >= size)
      break;
    const std::size_t newline = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
    const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
    const std::size_t end = std::min(text.find('\n', at), text.size());
    number += count_newlines(std::string_view(text).substr(counted, begin - counted));
    counted = begin;
    if (reader.text.place_at(begin) >= query.from_byte)
      put_line(out, reader.text, begin, end, end == text.size(), number);
    at = std::min(end + 1, text.size());
    if (out.count >= query.lines_max || out.lines.size() >= query_answer_bytes_max) {
      number += at > end;
      reader.text.drop_before(at);
      return false;
    }
  }
  number = reader.newlines() + 1;  // the reader has counted: no newline is after `size`
  reader.text.drop_before(size);
  return true;
}

Result<LogAnswer> run_search(const LogQuery& query, LineIndex& index, const LogPieces& read) {
  LogAnswer out;
  Finder finder = BILLOW_TRY(Finder::create(query));
  std::uint64_t newlines = 0;
  if (!BILLOW_TRY(count_to(index, read, query, UINT64_MAX, query.from_byte, newlines))) {
    out.more = true;
    out.next_byte = query.from_byte;
    return out;
  }
  const LineIndex::Mark from = index.before_place(query.from_byte);
  Reader reader(index, read, from);
  std::uint64_t number = from.newlines + 1;
  bool enough = false;
  while (!enough && BILLOW_TRY(reader.next())) {
    const std::string& text = reader.text.text;
    const std::size_t last = text.rfind('\n');
    if (reader.at_end || (last == std::string::npos && text.size() > line_bytes_max))
      enough = !BILLOW_TRY(find_lines(out, query, finder, reader, text.size(), number));
    else if (last != std::string::npos)
      enough = !BILLOW_TRY(find_lines(out, query, finder, reader, last + 1, number));
    out.next_byte =
        reader.text.text.empty() ? reader.place() + sizeof(RecordHead) : reader.text.place_at(0);
    if (reader.at_end || reader.tired(query))
      break;
  }
  out.end = !enough && reader.at_end;
  out.more = !enough && !reader.at_end;
  out.next_byte = std::max(out.next_byte, query.from_byte);
  out.next_line = number;
  out.first_line = index.first_line();
  out.lost_bytes = index.first_offset();
  return out;
}

}  // namespace

void LineIndex::add(const Mark& mark) {
  if (mark.offset < marks_.back().offset + mark_bytes || marks_.size() >= marks_max)
    return;
  marks_.push_back(mark);
}

void LineIndex::set_first(std::uint64_t offset) {
  if (marks_.front().offset >= offset)
    return;
  const auto kept = std::find_if(marks_.begin(), marks_.end(),
                                 [&](const Mark& mark) { return mark.offset >= offset; });
  const std::uint64_t newlines = marks_.back().newlines;
  marks_.erase(marks_.begin(), kept);
  if (marks_.empty())
    marks_.push_back({offset, newlines, offset + sizeof(RecordHead)});
}

LineIndex::Mark LineIndex::before_line(std::uint64_t line) const {
  const auto above = std::find_if(marks_.begin() + 1, marks_.end(),
                                  [&](const Mark& mark) { return mark.newlines + 1 >= line; });
  return *(above - 1);
}

LineIndex::Mark LineIndex::before_place(std::uint64_t place) const {
  const auto above = std::find_if(marks_.begin() + 1, marks_.end(),
                                  [&](const Mark& mark) { return mark.offset > place; });
  return *(above - 1);
}

LogQuery query_of(const agent_v1::LogRead& read) {
  return {.kind = read.query == "search" ? LogQuery::Kind::search : LogQuery::Kind::range,
          .from_line = read.from_line,
          .from_byte = read.offset,
          .tail_lines = read.tail_lines,
          .lines_max = std::clamp<std::size_t>(read.lines_max, 1, 10'000),
          .text = read.text,
          .regex = read.regex,
          .any_case = read.any_case};
}

void fill(agent_v1::LogChunk& chunk, const LogAnswer& answer) {
  chunk.answered = true;
  chunk.next_offset = answer.next_byte;
  chunk.line = answer.next_line;
  chunk.first_line = answer.first_line;
  chunk.lost_bytes = answer.lost_bytes;
  chunk.end = answer.end;
  chunk.more = answer.more;
}

Status check_query(const LogQuery& query) {
  if (query.kind == LogQuery::Kind::search && query.regex)
    BILLOW_TRY(LineRegex::compile(query.text, query.any_case));
  return {};
}

Result<LogAnswer> run_query(const LogQuery& query, LineIndex& index, const LogPieces& read) {
  // The oldest part may have been removed since the last query.
  LogPiece first;
  BILLOW_TRY_VOID(read(0, 1, first));
  if (!first.frames.empty())
    index.set_first(first.offset);
  return query.kind == LogQuery::Kind::range ? run_range(query, index, read)
                                             : run_search(query, index, read);
}

}  // namespace billow::wire
