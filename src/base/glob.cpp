#include "base/glob.h"

#include <optional>
#include <utility>

namespace billow {
namespace {

using Characters = std::bitset<256>;

// The classes of POSIX in the C locale.
std::optional<Characters> posix_class(std::string_view name) {
  const auto in = [](int c, int first, int last) {
    return c >= first && c <= last;
  };
  const auto upper = [&](int c) {
    return in(c, 'A', 'Z');
  };
  const auto lower = [&](int c) {
    return in(c, 'a', 'z');
  };
  const auto digit = [&](int c) {
    return in(c, '0', '9');
  };
  const auto alnum = [&](int c) {
    return upper(c) || lower(c) || digit(c);
  };
  Characters out;
  for (int c = 0; c < 256; ++c) {
    bool member = false;
    if (name == "alnum")
      member = alnum(c);
    else if (name == "alpha")
      member = upper(c) || lower(c);
    else if (name == "blank")
      member = c == ' ' || c == '\t';
    else if (name == "cntrl")
      member = c < 32 || c == 127;
    else if (name == "digit")
      member = digit(c);
    else if (name == "graph")
      member = in(c, 33, 126);
    else if (name == "lower")
      member = lower(c);
    else if (name == "print")
      member = in(c, 32, 126);
    else if (name == "punct")
      member = in(c, 33, 126) && !alnum(c);
    else if (name == "space")
      member = c == ' ' || in(c, '\t', '\r');
    else if (name == "upper")
      member = upper(c);
    else if (name == "xdigit")
      member = digit(c) || in(c, 'a', 'f') || in(c, 'A', 'F');
    else
      return std::nullopt;
    out[static_cast<std::size_t>(c)] = member;
  }
  return out;
}

Characters all_but_slash() {
  Characters out;
  out.set();
  out.reset('/');
  return out;
}

}  // namespace

PathGlob::PathGlob(std::string_view pattern) {
  for (std::size_t at = 0; at < pattern.size() && well_formed_;) {
    const char c = pattern[at];
    if (c == '*') {
      at = add_stars(pattern, at);
    } else if (c == '[') {
      at = add_brackets(pattern, at);
    } else if (c == '?') {
      tokens_.push_back({Token::Kind::one, all_but_slash()});
      ++at;
    } else if (c == '\\') {
      well_formed_ = at + 1 < pattern.size();
      if (well_formed_)
        add_character(static_cast<unsigned char>(pattern[at + 1]));
      at += 2;
    } else {
      add_character(static_cast<unsigned char>(c));
      ++at;
    }
  }
}

void PathGlob::add_character(unsigned char c) {
  Characters one;
  one.set(c);
  tokens_.push_back({Token::Kind::one, one});
}

// Two or more stars cross directories only where they stand alone between slashes. "**/" also
// matches no directory at all.
std::size_t PathGlob::add_stars(std::string_view pattern, std::size_t at) {
  std::size_t end = at;
  while (end < pattern.size() && pattern[end] == '*')
    ++end;
  const std::string_view rest = pattern.substr(end);
  const bool after_slash = at == 0 || pattern[at - 1] == '/';
  const bool before_slash = rest.empty() || rest.starts_with('/') || rest.starts_with("\\/");
  if (end - at == 1 || !after_slash || !before_slash) {
    tokens_.push_back({Token::Kind::many, all_but_slash()});
    return end;
  }
  Characters any;
  any.set();
  if (rest.starts_with('/')) {
    tokens_.push_back({Token::Kind::directories, any});
    return end + 1;
  }
  tokens_.push_back({Token::Kind::many, any});
  return end;
}

// A bracket directly after the opening one (or after "!") is a member, not the end.
std::size_t PathGlob::add_brackets(std::string_view pattern, std::size_t at) {
  // Like the terminator of a C string, 0 stands for the end of the pattern.
  const auto look = [&](std::size_t i) -> unsigned char {
    return i < pattern.size() ? static_cast<unsigned char>(pattern[i]) : 0;
  };
  Characters members;
  std::size_t i = at + 1;
  const bool negated = look(i) == '!' || look(i) == '^';
  if (negated)
    ++i;
  unsigned char before = 0;  // the start of a range, if a "-" follows
  for (bool first = true; first || look(i) != ']'; first = false, ++i) {
    unsigned char c = look(i);
    if (c == '-' && before != 0 && look(i + 1) != 0 && look(i + 1) != ']') {
      c = look(++i);
      if (c == '\\')
        c = look(++i);
      for (int member = before; member <= c; ++member)
        members.set(static_cast<std::size_t>(member));
      well_formed_ = c != 0;
      before = 0;
    } else if (const auto end = pattern.find(']', i + 2); c == '[' && look(i + 1) == ':' &&
                                                          end != std::string_view::npos &&
                                                          end > i + 2 && pattern[end - 1] == ':') {
      const auto named = posix_class(pattern.substr(i + 2, end - i - 3));
      members |= named.value_or(Characters());
      well_formed_ = named.has_value();
      before = 0;
      i = end;
    } else {
      if (c == '\\')
        c = look(++i);
      members.set(c);
      well_formed_ = c != 0;
      before = c;
    }
    if (!well_formed_)
      return pattern.size();
  }
  if (negated)
    members.flip();
  members.reset('/');
  tokens_.push_back({Token::Kind::one, members});
  return i + 1;
}

// A state is the number of tokens that are matched.
void PathGlob::follow_empty_matches(std::vector<bool>& states) const {
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    if (states[i] && tokens_[i].kind != Token::Kind::one)
      states[i + 1] = true;
}

bool PathGlob::matches(std::string_view text, std::size_t* steps) const {
  if (!well_formed_)
    return false;
  std::vector<bool> now(tokens_.size() + 1), next(tokens_.size() + 1);
  // States reached in the middle of a directory that "**/" skips: they leave only at a slash.
  std::vector<bool> skipping(tokens_.size());
  now[0] = true;
  follow_empty_matches(now);
  for (const char character : text) {
    const auto c = static_cast<unsigned char>(character);
    bool alive = false;
    next.assign(next.size(), false);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (steps)
        ++*steps;
      const Token& token = tokens_[i];
      if (token.kind == Token::Kind::directories) {
        if (now[i])
          skipping[i] = true;
        if (skipping[i] && c == '/')
          next[i + 1] = true;
        alive = alive || skipping[i];
      } else if (now[i] && token.characters[c]) {
        next[token.kind == Token::Kind::many ? i : i + 1] = true;
        alive = true;
      }
    }
    if (!alive)
      return false;
    follow_empty_matches(next);
    std::swap(now, next);
  }
  return now.back();
}

bool star_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace billow
