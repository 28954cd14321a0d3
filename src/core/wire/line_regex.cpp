#include "core/wire/line_regex.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace billow::wire {
namespace {

constexpr std::size_t nodes_max = 4'000;
constexpr int depth_max = 50;
constexpr int repeat_max = 1'000;

// The parts of an expression, as parsed; compiled into nodes below.
struct Part {
  enum class Kind { empty, set, all_of, one_of, repeat, begin, end };
  Kind kind = Kind::empty;
  std::uint32_t set = 0;
  std::vector<std::uint32_t> parts;
  int least = 0, most = -1;  // of `repeat`; -1: without end
};

// The lead bytes of UTF-8 characters of several bytes, and how many bytes follow.
struct Lead {
  int low, high, more;
};
constexpr Lead leads[] = {{0xc2, 0xdf, 1}, {0xe0, 0xef, 2}, {0xf0, 0xf4, 3}};

// ASCII only, independent of the locale.
bool between(int c, int low, int high) {
  return c >= low && c <= high;
}
int ascii_digit(int c) {
  return between(c, '0', '9');
}
int ascii_upper(int c) {
  return between(c, 'A', 'Z');
}
int ascii_lower(int c) {
  return between(c, 'a', 'z');
}
int ascii_alpha(int c) {
  return ascii_upper(c) || ascii_lower(c);
}
int ascii_alnum(int c) {
  return ascii_alpha(c) || ascii_digit(c);
}
int ascii_word(int c) {
  return ascii_alnum(c) || c == '_';
}
int ascii_space(int c) {
  return c == ' ' || (between(c, '\t', '\r') && c != '\n');
}
int ascii_punct(int c) {
  return between(c, '!', '~') && !ascii_alnum(c);
}
int ascii_hex(int c) {
  return ascii_digit(c) || between(c | 0x20, 'a', 'f');
}

std::size_t utf8_length(unsigned char first) {
  return first < 0xc2 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 1;
}

}  // namespace

class RegexParser {
 public:
  RegexParser(std::string_view text, bool any_case) : text_(text), any_case_(any_case) {}

  Result<LineRegex> run() {
    const std::uint32_t root = BILLOW_TRY(one_of(0));
    if (at_ < text_.size())
      return error("an unmatched )");
    const std::uint32_t match = add({.kind = Node::Kind::match});
    out_.start_ = emit(root, match);
    if (out_.nodes_.size() > nodes_max)
      return fail(Code::invalid, fmt::format("the expression \"{}\" is too large", text_),
                  "use smaller repeats");
    out_.seen_.assign(out_.nodes_.size(), 0);
    out_.make_classes();
    out_.restart();
    return std::move(out_);
  }

 private:
  using Node = LineRegex::Node;
  using Bytes = LineRegex::Bytes;
  // A set of characters (a bracket, a dot, a letter): ASCII bytes, and longer characters.
  struct Characters {
    Bytes ascii;
    std::vector<std::string> longer;
    bool all_longer = false;
  };

  std::unexpected<Error> error(std::string_view what) const {
    return fail(Code::invalid, fmt::format("\"{}\" is not a regular expression: {} at character {}",
                                           text_, what, at_ + 1));
  }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c)
      return false;
    ++at_;
    return true;
  }
  std::uint32_t part(Part p) {
    parts_.push_back(std::move(p));
    return static_cast<std::uint32_t>(parts_.size() - 1);
  }
  std::uint32_t set_part(const Bytes& set) {
    out_.sets_.push_back(set);
    return part(
        {.kind = Part::Kind::set, .set = static_cast<std::uint32_t>(out_.sets_.size() - 1)});
  }

  Result<std::uint32_t> one_of(int depth) {
    if (depth > depth_max)
      return error("too many groups in groups");
    Part choice{.kind = Part::Kind::one_of};
    do {
      Part row{.kind = Part::Kind::all_of};
      while (at_ < text_.size() && text_[at_] != '|' && text_[at_] != ')')
        row.parts.push_back(BILLOW_TRY(repeated(depth)));
      choice.parts.push_back(part(std::move(row)));
    } while (take('|'));
    return part(std::move(choice));
  }

  Result<std::uint32_t> repeated(int depth) {
    std::uint32_t inner = BILLOW_TRY(atom(depth));
    while (at_ < text_.size()) {
      Part repeat{.kind = Part::Kind::repeat, .parts = {inner}};
      if (take('+'))
        repeat.least = 1;
      else if (take('?'))
        repeat.most = 1;
      else if (!take('*') && !BILLOW_TRY(counted(repeat)))
        break;
      take('?');  // lazy
      inner = part(std::move(repeat));
    }
    return inner;
  }

  // {n}, {n,} or {n,m}; any other brace is a character.
  Result<bool> counted(Part& repeat) {
    const std::size_t begin = at_;
    if (!take('{'))
      return false;
    const auto number = [&]() -> int {
      int value = -1;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value <= repeat_max)
        value = std::max(value, 0) * 10 + (text_[at_++] - '0');
      return value;
    };
    repeat.least = repeat.most = number();
    if (repeat.least >= 0 && take(','))
      repeat.most = number();
    if (repeat.least > repeat_max || repeat.most > repeat_max)
      return error(fmt::format("a repeat above {}", repeat_max));
    if (repeat.least < 0 || !take('}')) {
      at_ = begin;
      return false;
    }
    if (repeat.most >= 0 && repeat.most < repeat.least)
      return error("a repeat whose most is below its least");
    return true;
  }

  Result<std::uint32_t> atom(int depth) {
    const char c = text_[at_];
    switch (c) {
      case '(': {
        ++at_;
        if (take('?') && !take(':'))
          return error("(? without : is not supported");
        const std::uint32_t inner = BILLOW_TRY(one_of(depth + 1));
        if (!take(')'))
          return error("a missing )");
        return inner;
      }
      case '*':
      case '+':
      case '?':
        return error("nothing to repeat");
      case '^':
        ++at_;
        return part({.kind = Part::Kind::begin});
      case '$':
        ++at_;
        return part({.kind = Part::Kind::end});
      case '[':
        ++at_;
        return characters(BILLOW_TRY(bracket()));
      case '.': {
        ++at_;
        Characters any{.all_longer = true};
        any.ascii.set();
        return characters(any);
      }
      default: {
        Characters one;
        BILLOW_TRY_VOID(character(one));
        return characters(one);
      }
    }
  }

  // A character or class that may also be in brackets. Returns its byte, or -1 for a class.
  Result<int> character(Characters& into) {
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '\\')
      return escaped(into);
    const std::size_t bytes = std::min(utf8_length(c), text_.size() - at_);
    if (bytes > 1) {
      into.longer.emplace_back(text_.substr(at_, bytes));
      at_ += bytes;
      return -1;
    }
    ++at_;
    into.ascii.set(c);
    return c;
  }

  Result<int> escaped(Characters& into) {
    ++at_;
    if (at_ >= text_.size())
      return error("a \\ with nothing after it");
    const char c = text_[at_];
    Bytes named;
    const char kind = ascii_alpha(c) ? static_cast<char>(c | 0x20) : '\0';
    if (kind == 'd' || kind == 'w' || kind == 's') {
      ++at_;
      const bool others = ascii_upper(c);  // \D and the like
      for (int b = 0; b < 0x80; ++b)
        if ((kind == 'd' ? ascii_digit : kind == 'w' ? ascii_word : ascii_space)(b) != others)
          named.set(static_cast<std::size_t>(b));
      into.all_longer = into.all_longer || others;
      into.ascii |= named;
      return -1;
    }
    if (c != 't' && (ascii_alnum(c) || static_cast<unsigned char>(c) >= 0x80))
      return error(fmt::format("an escape that is not supported (\\{})", c));
    ++at_;
    const char plain = c == 't' ? '\t' : c;
    into.ascii.set(static_cast<unsigned char>(plain));
    return plain;
  }
  static void range(Bytes& set, int first, int last) {
    for (int b = first; b <= last; ++b)
      set.set(static_cast<std::size_t>(b));
  }

  // After [.
  Result<Characters> bracket() {
    Characters in;
    const bool not_these = take('^');
    for (bool first = true; first || at_ >= text_.size() || text_[at_] != ']'; first = false) {
      if (at_ >= text_.size())
        return error("a missing ]");
      if (text_.substr(at_).starts_with("[:")) {
        BILLOW_TRY_VOID(named_class(in.ascii));
        continue;
      }
      const int low = BILLOW_TRY(character(in));
      if (at_ + 1 >= text_.size() || text_[at_] != '-' || text_[at_ + 1] == ']')
        continue;
      ++at_;
      Characters last;
      const int high = BILLOW_TRY(character(last));
      if (low < 0 || high < 0)
        return error("a range whose ends are not single ASCII characters");
      if (high < low)
        return error("a range whose end is before its beginning");
      range(in.ascii, low, high);
    }
    ++at_;
    if (not_these && !in.longer.empty())
      return error("[^] with letters outside ASCII is not supported");
    if (any_case_)
      fold(in.ascii);
    if (not_these) {
      in.ascii.flip();
      in.all_longer = !in.all_longer;
    }
    return in;
  }

  Status named_class(Bytes& into) {
    const std::size_t end = text_.find(":]", at_ + 2);
    const std::string_view name =
        end == text_.npos ? std::string_view{} : text_.substr(at_ + 2, end - at_ - 2);
    const auto is = [&](std::string_view a) {
      return name == a;
    };
    int (*in)(int) = is("alpha")    ? ascii_alpha
                     : is("alnum")  ? ascii_alnum
                     : is("digit")  ? ascii_digit
                     : is("lower")  ? ascii_lower
                     : is("upper")  ? ascii_upper
                     : is("space")  ? ascii_space
                     : is("punct")  ? ascii_punct
                     : is("xdigit") ? ascii_hex
                                    : nullptr;
    if (!in)
      return error("an unknown class (alpha, alnum, digit, lower, upper, space, punct or xdigit)");
    for (int c = 0; c < 0x80; ++c)
      if (in(c))
        into.set(static_cast<std::size_t>(c));
    at_ = end + 2;
    return {};
  }

  static void fold(Bytes& set) {
    for (std::size_t c = 'a'; c <= 'z'; ++c)
      set[c] = set[c - 32] = set[c] || set[c - 32];
  }

  // A character outside ASCII has several bytes. A byte of no valid character counts as one.
  std::uint32_t characters(Characters in) {
    if (any_case_)
      fold(in.ascii);
    Bytes single = in.ascii;
    for (std::size_t b = 0x80; b < 256; ++b)
      single[b] = in.all_longer;
    single.reset('\n');
    if (!in.all_longer && in.longer.empty())
      return set_part(single);
    Part choice{.kind = Part::Kind::one_of, .parts = {set_part(single)}};
    for (const std::string& one : in.longer) {
      Part row{.kind = Part::Kind::all_of};
      for (const char c : one)
        row.parts.push_back(set_part(Bytes().set(static_cast<unsigned char>(c))));
      choice.parts.push_back(part(std::move(row)));
    }
    for (const Lead& lead : leads) {
      if (!in.all_longer)
        break;
      Bytes first, rest;
      range(first, lead.low, lead.high);
      range(rest, 0x80, 0xbf);
      Part row{.kind = Part::Kind::all_of, .parts = {set_part(first)}};
      for (int i = 0; i < lead.more; ++i)
        row.parts.push_back(set_part(rest));
      choice.parts.push_back(part(std::move(row)));
    }
    return part(std::move(choice));
  }

  // ---- Nodes are built from the end of the expression to its beginning.

  std::uint32_t add(Node node) {
    out_.nodes_.push_back(node);
    return static_cast<std::uint32_t>(out_.nodes_.size() - 1);
  }
  bool too_large() const { return out_.nodes_.size() > nodes_max; }

  // Builds the nodes of a part that continues at `next`; returns the first of them.
  std::uint32_t emit(std::uint32_t index, std::uint32_t next) {
    const Part& p = parts_[index];
    switch (p.kind) {
      case Part::Kind::empty:
        return next;
      case Part::Kind::set:
        return add({.kind = Node::Kind::bytes, .set = p.set, .out = next});
      case Part::Kind::begin:
        return add({.kind = Node::Kind::begin, .out = next});
      case Part::Kind::end:
        return add({.kind = Node::Kind::end, .out = next});
      case Part::Kind::all_of:
        for (auto it = p.parts.rbegin(); it != p.parts.rend() && !too_large(); ++it)
          next = emit(*it, next);
        return next;
      case Part::Kind::one_of: {
        std::uint32_t first = emit(p.parts.back(), next);
        for (std::size_t i = p.parts.size() - 1; i-- > 0 && !too_large();) {
          const std::uint32_t other = emit(p.parts[i], next);
          first = add({.kind = Node::Kind::split, .out = other, .other = first});
        }
        return first;
      }
      case Part::Kind::repeat:
        return emit_repeat(p, next);
    }
    return next;
  }
  std::uint32_t emit_repeat(const Part& p, std::uint32_t next) {
    const std::uint32_t inner = p.parts.front();
    if (p.most < 0) {
      const std::uint32_t loop = add({.kind = Node::Kind::split, .other = next});
      const std::uint32_t body = emit(inner, loop);
      out_.nodes_[loop].out = body;
      next = loop;
    }
    for (int i = p.least; i < p.most && !too_large(); ++i) {
      const std::uint32_t body = emit(inner, next);
      next = add({.kind = Node::Kind::split, .out = body, .other = next});
    }
    for (int i = 0; i < p.least && !too_large(); ++i)
      next = emit(inner, next);
    return next;
  }

  std::string_view text_;
  bool any_case_;
  std::size_t at_ = 0;
  std::vector<Part> parts_;
  LineRegex out_;
};

Result<LineRegex> LineRegex::compile(std::string_view expression, bool any_case) {
  return RegexParser(expression, any_case).run();
}

// Bytes that every set treats alike share one column of the table.
void LineRegex::make_classes() {
  std::map<std::string, std::uint8_t> classes;
  for (std::size_t b = 0; b < 256; ++b) {
    std::string in;
    for (const Bytes& set : sets_)
      in += set[b] ? '1' : '0';
    in += b == '\n' ? 'n' : '-';
    const auto [it, fresh] = classes.emplace(in, static_cast<std::uint8_t>(classes.size()));
    if (fresh)
      byte_of_class_.push_back(static_cast<std::uint8_t>(b));
    class_of_[b] = it->second;
  }
  newline_class_ = class_of_['\n'];
}

// Adds all nodes that can be reached without reading a byte.
LineRegex::Closure LineRegex::close(std::vector<std::uint32_t> from, bool at_begin, bool at_end) {
  Closure out;
  ++closure_number_;
  while (!from.empty()) {
    const std::uint32_t index = from.back();
    from.pop_back();
    ++work_;
    if (seen_[index] == closure_number_)
      continue;
    seen_[index] = closure_number_;
    const Node& node = nodes_[index];
    switch (node.kind) {
      case Node::Kind::match:
        out.matched = true;
        break;
      case Node::Kind::bytes:
        out.nodes.push_back(index);
        break;
      case Node::Kind::split:
        from.push_back(node.out);
        from.push_back(node.other);
        break;
      case Node::Kind::begin:
        if (at_begin)
          from.push_back(node.out);
        break;
      case Node::Kind::end:
        if (at_end)
          from.push_back(node.out);
        else
          out.nodes.push_back(index);
        break;
    }
  }
  std::sort(out.nodes.begin(), out.nodes.end());
  return out;
}

std::int32_t LineRegex::state_of(Closure closure, bool at_begin) {
  if (closure.matched)
    return hit;
  std::string key(at_begin ? "^" : "-");
  key.append(reinterpret_cast<const char*>(closure.nodes.data()),
             closure.nodes.size() * sizeof(closure.nodes[0]));
  const auto [it, fresh] =
      known_.emplace(std::move(key), static_cast<std::int32_t>(states_.size()));
  if (fresh) {
    held_ += closure.nodes.size() + byte_of_class_.size();
    states_.push_back({std::move(closure.nodes), at_begin});
    at_ends_.push_back(-1);
    table_.resize(table_.size() + byte_of_class_.size(), unknown);
    table_[table_.size() - byte_of_class_.size() + newline_class_] = line_end;
  }
  return it->second;
}

// State 0 is the beginning of a line, unless that is already a match.
void LineRegex::restart() {
  states_.clear();
  at_ends_.clear();
  table_.clear();
  known_.clear();
  held_ = 0;
  state_of(close({start_}, true, false), true);
}

std::int32_t LineRegex::step(std::int32_t state, std::uint8_t cls) {
  // A match may begin at any place.
  std::vector<std::uint32_t> after = {start_};
  const std::uint8_t byte = byte_of_class_[cls];
  for (const std::uint32_t index : states_[static_cast<std::size_t>(state)].nodes)
    if (const Node& node = nodes_[index]; node.kind == Node::Kind::bytes && sets_[node.set][byte])
      after.push_back(node.out);
  work_ += states_[static_cast<std::size_t>(state)].nodes.size();
  Closure closure = close(std::move(after), false, false);
  if (held_ >= held_max && !closure.matched) {
    restart();
    return state_of(std::move(closure), false);
  }
  const std::int32_t next = state_of(std::move(closure), false);
  table_[static_cast<std::size_t>(state) * byte_of_class_.size() + cls] = next;
  return next;
}

bool LineRegex::matches_at_end(std::int32_t state) {
  std::int8_t& known = at_ends_[static_cast<std::size_t>(state)];
  if (known < 0) {
    const State& s = states_[static_cast<std::size_t>(state)];
    known = close(s.nodes, s.at_begin, true).matched ? 1 : 0;
  }
  return known == 1;
}

Result<std::size_t> LineRegex::find(std::string_view text, std::size_t at) {
  if (states_.empty())  // it matches every line
    return at < text.size() ? at : std::string_view::npos;
  std::size_t line = at;
  std::int32_t state = 0;
  const std::size_t columns = byte_of_class_.size();
  for (; at < text.size(); ++at) {
    const std::uint8_t cls = class_of_[static_cast<std::uint8_t>(text[at])];
    std::int32_t next = table_[static_cast<std::size_t>(state) * columns + cls];
    if (next < 0) {
      if (next == unknown)
        next = step(state, cls);
      if (spent())
        return fail(
            Code::invalid,
            "the expression takes too long to search this log: use fewer repeats and choices");
      if (next == hit)
        return line;
      if (next == line_end) {
        if (matches_at_end(state))
          return line;
        line = at + 1;
        next = 0;
      }
    }
    state = next;
  }
  return line < text.size() && matches_at_end(state) ? line : std::string_view::npos;
}

}  // namespace billow::wire
