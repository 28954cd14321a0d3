// What a person does at a terminal, from the bytes it sends: keys, mouse (SGR, mode 1006) and
// pasted text (mode 2004). Bytes may arrive in any pieces. An escape sequence that is not known is
// dropped whole, so that its letters are not taken for keys.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace billow::client::top {

enum class KeyName {
  letter,  // `text` has the character
  enter,
  escape,
  tab,
  back_tab,
  backspace,
  up,
  down,
  left,
  right,
  page_up,
  page_down,
  home,
  end,
  control,  // `text` has the letter: "c" for Ctrl-C
};
struct Key {
  KeyName name = KeyName::letter;
  std::string text = {};
  bool operator==(const Key&) const = default;
};
struct Mouse {
  enum class Kind { click, wheel_up, wheel_down };
  Kind kind = Kind::click;
  int row = 0, col = 0;  // from 0
  bool operator==(const Mouse&) const = default;
};
struct Paste {
  std::string text;
  bool operator==(const Paste&) const = default;
};
using Input = std::variant<Key, Mouse, Paste>;

class InputDecoder {
 public:
  std::vector<Input> feed(std::string_view bytes);
  // Nothing has followed for a while: a lone ESC was the key. Returns what was held back.
  std::vector<Input> flush();
  bool pending() const { return !held_.empty(); }

 private:
  // The bytes that the next input takes; 0: more must come first.
  std::size_t next(std::string_view bytes, std::vector<Input>& out);
  std::size_t sequence(std::string_view bytes, std::vector<Input>& out);
  std::size_t paste(std::string_view bytes);
  std::string held_;
  bool pasting_ = false;
  std::string pasted_;
};

}  // namespace billow::client::top
