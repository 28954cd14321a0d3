#include "client/top/keys.h"

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace billow::client::top {
namespace {

constexpr std::size_t sequence_bytes_max = 64;
constexpr std::size_t paste_bytes_max = 4096;
constexpr std::string_view paste_begin = "\x1b[200~", paste_end = "\x1b[201~";
constexpr int mouse_wheel = 64, mouse_moves = 32, mouse_modifiers = 4 + 8 + 16;

std::optional<KeyName> final_key(char letter) {
  switch (letter) {
    case 'A':
      return KeyName::up;
    case 'B':
      return KeyName::down;
    case 'C':
      return KeyName::right;
    case 'D':
      return KeyName::left;
    case 'H':
      return KeyName::home;
    case 'F':
      return KeyName::end;
    case 'Z':
      return KeyName::back_tab;
    case 'M':
      return KeyName::enter;  // of the keypad, as ESC O M
    default:
      return std::nullopt;
  }
}

// "5" of ESC [ 5 ~
std::optional<KeyName> tilde_key(std::string_view number) {
  if (number == "1" || number == "7")
    return KeyName::home;
  if (number == "4" || number == "8")
    return KeyName::end;
  if (number == "5")
    return KeyName::page_up;
  if (number == "6")
    return KeyName::page_down;
  return std::nullopt;
}

// "0;12;7" of ESC [ < 0;12;7 M
std::optional<Mouse> mouse_of(std::string_view parameters) {
  const auto parts = split(parameters, ';');
  if (parts.size() != 3)
    return std::nullopt;
  int numbers[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const auto n = parse_int(parts[i], 0, 100'000);
    if (!n)
      return std::nullopt;
    numbers[i] = static_cast<int>(*n);
  }
  const int button = numbers[0] & ~mouse_modifiers;
  Mouse mouse{Mouse::Kind::click, numbers[2] - 1, numbers[1] - 1};
  if (button == mouse_wheel)
    mouse.kind = Mouse::Kind::wheel_up;
  else if (button == mouse_wheel + 1)
    mouse.kind = Mouse::Kind::wheel_down;
  else if (button != 0 || (numbers[0] & mouse_moves))
    return std::nullopt;
  if (mouse.row < 0 || mouse.col < 0)
    return std::nullopt;
  return mouse;
}

Input plain_key(unsigned char c) {
  switch (c) {
    case '\r':
    case '\n':
      return Key{KeyName::enter};
    case '\t':
      return Key{KeyName::tab};
    case 0x7f:
    case '\b':
      return Key{KeyName::backspace};
    default:
      break;
  }
  if (c < 32)
    return Key{KeyName::control, std::string(1, static_cast<char>(c + 96))};
  return Key{KeyName::letter, std::string(1, static_cast<char>(c))};
}

// How many bytes the UTF-8 character beginning with this byte has; 0: none begins so.
std::size_t letter_bytes(unsigned char first) {
  return first < 0x80   ? 1
         : first < 0xC2 ? 0
         : first < 0xE0 ? 2
         : first < 0xF0 ? 3
         : first < 0xF5 ? 4
                        : 0;
}

}  // namespace

// Ctrl-C ends a paste whose end mark was lost; the key itself is read next.
std::size_t InputDecoder::paste(std::string_view bytes) {
  const auto mark = bytes.find(paste_end), interrupt = bytes.find('\x03');
  const auto end = std::min(mark, interrupt);
  // What could be the beginning of the end mark stays back.
  const std::size_t take = end != std::string_view::npos      ? end
                           : bytes.size() >= paste_end.size() ? bytes.size() - paste_end.size() + 1
                                                              : 0;
  pasted_ +=
      bytes.substr(0, std::min(take, paste_bytes_max - std::min(paste_bytes_max, pasted_.size())));
  if (end == std::string_view::npos)
    return take;
  pasting_ = false;
  return interrupt < mark ? interrupt : mark + paste_end.size();
}

// An escape sequence: ESC [ parameters final, or ESC O letter.
std::size_t InputDecoder::sequence(std::string_view bytes, std::vector<Input>& out) {
  std::size_t n = 2;
  if (bytes[1] == '[')
    while (n < bytes.size() && (bytes[n] < 0x40 || bytes[n] > 0x7e))
      if (++n > sequence_bytes_max)
        return n;
  if (n >= bytes.size())
    return 0;
  const std::string_view parameters = bytes.substr(2, n - 2);
  const char last = bytes[n++];
  if (bytes.substr(0, n) == paste_begin) {
    pasting_ = true;
    pasted_.clear();
  } else if (parameters.starts_with('<') && last == 'M') {
    if (const auto mouse = mouse_of(parameters.substr(1)))
      out.emplace_back(*mouse);
  } else if (parameters.starts_with('<') || (last == 'M' && bytes[1] == '[')) {
    return n;  // a released button, or a mouse report of another kind
  } else if (last == '~') {
    if (const auto key = tilde_key(parameters.substr(0, parameters.find(';'))))
      out.emplace_back(Key{*key});
  } else if (const auto key = final_key(last)) {
    out.emplace_back(Key{*key});
  }
  return n;
}

std::size_t InputDecoder::next(std::string_view bytes, std::vector<Input>& out) {
  if (pasting_) {
    const std::size_t n = paste(bytes);
    if (pasting_)
      return n;
    out.emplace_back(Paste{std::exchange(pasted_, {})});
    if (n > 0)
      return n;
  }
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (first == 0x1b) {
    if (bytes.size() == 1)
      return 0;
    if (bytes[1] == '[' || bytes[1] == 'O')
      return sequence(bytes, out);
    // ESC and then another key: Alt with that key is no key here, two ESC are one Escape.
    out.emplace_back(Key{KeyName::escape});
    return bytes[1] == 0x1b ? 1 : 2;
  }
  if (first < 0x80) {
    out.push_back(plain_key(first));
    return 1;
  }
  const std::size_t want = letter_bytes(first);
  if (want > bytes.size())
    return 0;
  if (want == 0 || !valid_utf8(bytes.substr(0, want)))
    return 1;
  out.emplace_back(Key{KeyName::letter, std::string(bytes.substr(0, want))});
  return want;
}

std::vector<Input> InputDecoder::feed(std::string_view bytes) {
  std::vector<Input> out;
  held_ += bytes;
  std::size_t at = 0;
  while (at < held_.size()) {
    const std::size_t n = next(std::string_view(held_).substr(at), out);
    if (n == 0)
      break;
    at += n;
  }
  held_.erase(0, at);
  return out;
}

std::vector<Input> InputDecoder::flush() {
  std::vector<Input> out;
  if (pasting_)
    return out;
  if (held_.starts_with('\x1b'))
    out.emplace_back(Key{KeyName::escape});
  held_.clear();
  return out;
}

}  // namespace billow::client::top
