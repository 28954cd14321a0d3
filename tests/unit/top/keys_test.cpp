#include <gtest/gtest.h>

#include "client/top/keys.h"

namespace billow::client::top {
namespace {

std::vector<Input> decoded(std::string_view bytes, std::size_t piece = 1000) {
  InputDecoder decoder;
  std::vector<Input> out;
  for (std::size_t i = 0; i < bytes.size(); i += piece)
    for (Input& input : decoder.feed(bytes.substr(i, piece)))
      out.push_back(std::move(input));
  for (Input& input : decoder.flush())
    out.push_back(std::move(input));
  return out;
}

TEST(TopKeys, ReadsKeysOfAllKinds) {
  EXPECT_EQ(
      decoded("aé\r\t\x7f\x03"),
      (std::vector<Input>{Key{KeyName::letter, "a"}, Key{KeyName::letter, "é"}, Key{KeyName::enter},
                          Key{KeyName::tab}, Key{KeyName::backspace}, Key{KeyName::control, "c"}}));
  EXPECT_EQ(decoded("\x1b[A\x1bOB\x1b[1;5C\x1b[5~\x1b[Z\x1b[1~\x1b[F"),
            (std::vector<Input>{Key{KeyName::up}, Key{KeyName::down}, Key{KeyName::right},
                                Key{KeyName::page_up}, Key{KeyName::back_tab}, Key{KeyName::home},
                                Key{KeyName::end}}));
}

TEST(TopKeys, PiecesOfASequenceAreOneKey) {
  const std::string bytes = "\x1b[Aé\x1b[<0;12;7M\x1b[200~sy\x1b[201~x";
  for (std::size_t piece = 1; piece < bytes.size(); ++piece)
    EXPECT_EQ(decoded(bytes, piece), decoded(bytes)) << piece;
}

TEST(TopKeys, ALoneEscapeIsAKeyOnlyIfNothingFollows) {
  InputDecoder decoder;
  EXPECT_TRUE(decoder.feed("\x1b").empty());
  EXPECT_TRUE(decoder.pending());
  EXPECT_EQ(decoder.flush(), std::vector<Input>{Key{KeyName::escape}});
  EXPECT_FALSE(decoder.pending());
}

TEST(TopKeys, MouseReportsClicksAndTheWheel) {
  EXPECT_EQ(
      decoded("\x1b[<0;12;7M\x1b[<0;12;7m\x1b[<64;1;1M\x1b[<65;1;1M\x1b[<35;3;3M"),
      (std::vector<Input>{Mouse{Mouse::Kind::click, 6, 11}, Mouse{Mouse::Kind::wheel_up, 0, 0},
                          Mouse{Mouse::Kind::wheel_down, 0, 0}}));
}

TEST(TopKeys, UnknownSequencesAreDroppedWhole) {
  EXPECT_EQ(decoded("\x1b[?1;2c\x1b[99~\x1b[<99999999999;1;1My"),
            std::vector<Input>{(Key{KeyName::letter, "y"})});
}

TEST(TopKeys, PastedTextIsNoKeys) {
  EXPECT_EQ(decoded("\x1b[200~sy\r\x1b[201~"), std::vector<Input>{Paste{"sy\r"}});
}

}  // namespace
}  // namespace billow::client::top
