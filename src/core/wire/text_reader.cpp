#include "core/wire/text_reader.h"

#include <charconv>
#include <cstring>

#include "base/text.h"

namespace billow::wire {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

char unescaped(char c) {
  switch (c) {
    case '"':
    case '\\':
    case '/':
      return c;
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return '\0';
  }
}

}  // namespace

bool TextReader::take_null() {
  if (failed_ || end_ - at_ < 4 || std::memcmp(at_, "null", 4) != 0)
    return false;
  at_ += 4;
  return true;
}

void TextReader::read_bool(bool& value) {
  const auto is = [&](std::string_view word) {
    if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word))
      return false;
    at_ += word.size();
    return true;
  };
  if (is("true"))
    value = true;
  else if (is("false"))
    value = false;
  else
    fail();
}

std::string_view TextReader::plain_text() {
  expect('"');
  if (failed_)
    return {};
  const char* const first = at_;
  while (at_ < end_ && *at_ != '"') {
    const auto c = static_cast<unsigned char>(*at_);
    if (c < 0x20 || c >= 0x80 || c == '\\') {
      fail();
      return {};
    }
    ++at_;
  }
  const std::string_view text(first, static_cast<std::size_t>(at_ - first));
  expect('"');
  return failed_ ? std::string_view() : text;
}

void TextReader::read_text(std::string& value) {
  expect('"');
  if (failed_)
    return;
  value.clear();
  const char* copied = at_;
  const auto copy = [&] {
    value.append(copied, static_cast<std::size_t>(at_ - copied));
  };
  while (at_ < end_) {
    const auto c = static_cast<unsigned char>(*at_);
    if (c == '"') {
      copy();
      ++at_;
      return;
    }
    if (c == '\\') {
      const char letter = end_ - at_ > 1 ? unescaped(at_[1]) : '\0';
      if (letter == '\0')
        return fail();
      copy();
      value += letter;
      at_ += 2;
      copied = at_;
    } else if (c >= 0x80) {
      const std::size_t bytes =
          utf8_letter(std::string_view(at_, static_cast<std::size_t>(end_ - at_)), 0);
      if (bytes == 0)
        return fail();
      at_ += bytes;
    } else if (c >= 0x20) {
      ++at_;
    } else {
      return fail();
    }
  }
  fail();
}

std::uint64_t TextReader::read_unsigned(std::uint64_t max) {
  std::uint64_t n = 0;
  const auto [next, error] = std::from_chars(at_, end_, n);
  const bool padded = next - at_ > 1 && *at_ == '0';
  const bool goes_on = next < end_ && (*next == '.' || *next == 'e' || *next == 'E');
  if (error != std::errc() || padded || goes_on || n > max)
    fail();
  at_ = next;
  return failed_ ? 0 : n;
}

std::int64_t TextReader::read_signed(std::int64_t min, std::int64_t max) {
  if (!take('-'))
    return static_cast<std::int64_t>(read_unsigned(static_cast<std::uint64_t>(max)));
  const auto n = static_cast<std::int64_t>(read_unsigned(INT64_MAX));
  if (n == 0 || -n < min)
    fail();
  return failed_ ? 0 : -n;
}

// Numbers that need not be whole are few: the reader of documents reads them.
double TextReader::read_double() {
  const char* const first = at_;
  const auto belongs = [](char c) {
    return is_digit(c) || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
  };
  while (at_ < end_ && belongs(*at_))
    ++at_;
  const auto number = parse_json(std::string_view(first, static_cast<std::size_t>(at_ - first)));
  if (!number)
    fail();
  return failed_ ? 0 : number->double_or(0);
}

}  // namespace billow::wire
