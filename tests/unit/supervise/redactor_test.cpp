// What the log of a job shows instead of the values of its secrets.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "agent/task/redacted.h"
#include "base/crypto.h"
#include "supervise/redactor.h"

namespace billow::supervise {
namespace {

std::string packed(const std::vector<std::string>& values) {
  std::string out;
  for (const std::string& value : values) {
    const auto length = static_cast<std::uint32_t>(value.size());
    out.append(reinterpret_cast<const char*>(&length), sizeof(length)).append(value);
  }
  return out;
}

// A redactor and what it has shown of its two streams.
struct Shown {
  struct Packed {
    std::string text;
  };
  explicit Shown(const Packed& values) : redactor(new Redactor) {
    EXPECT_EQ(redactor->take(values.text.data(), values.text.size()), nullptr);
  }
  explicit Shown(const std::vector<std::string>& values) : Shown(Packed{packed(values)}) {}
  static void sink(void* to, const char* data, std::uint32_t bytes) {
    static_cast<std::string*>(to)->append(data, bytes);
  }
  void feed(const std::string& text, int stream = 0) {
    redactor->feed(stream, text.data(), text.size(), sink, &out[stream]);
  }
  void release(int stream = 0) { redactor->release(stream, sink, &out[stream]); }
  std::unique_ptr<Redactor> redactor;
  std::string out[2];
};

std::string redacted(const std::vector<std::string>& values, const std::string& text) {
  Shown shown(values);
  shown.feed(text);
  shown.release();
  return shown.out[0];
}

// The same by looking for every value at every place.
std::string by_searching(const std::vector<std::string>& values, const std::string& text) {
  std::vector<bool> hidden(text.size());
  for (const std::string& value : values)
    for (std::size_t at = text.find(value); at != std::string::npos; at = text.find(value, at + 1))
      std::fill_n(hidden.begin() + static_cast<std::ptrdiff_t>(at), value.size(), true);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (!hidden[i])
      out += text[i];
    else if (i == 0 || !hidden[i - 1])
      out += "***";
  return out;
}

TEST(Redactor, ShowsStarsInsteadOfAValue) {
  EXPECT_EQ(redacted({"hunter22"}, "the password is hunter22.\n"), "the password is ***.\n");
  EXPECT_EQ(redacted({"hunter22"}, "hunter22hunter22 hunter2"), "*** hunter2");
  EXPECT_EQ(redacted({"aaaaaa"}, "xaaaaaaaaaay"), "x***y");
  EXPECT_EQ(redacted({"abcdef", "defghi"}, "-abcdefghi-"), "-***-");
  EXPECT_EQ(redacted({"abcdef", "abcdefgh"}, "abcdefg abcdefgh"), "***g ***");
  EXPECT_EQ(redacted({std::string("a\0b\0c\0d", 7)}, std::string("1a\0b\0c\0d2", 9)), "1***2");
}

TEST(Redactor, LeavesShortValuesAlone) {
  Shown shown(std::vector<std::string>{"12345", "a"});
  EXPECT_FALSE(shown.redactor->active());
  EXPECT_EQ(redacted({"12345", "123456"}, "12345 123456"), "12345 ***");
}

TEST(Redactor, HoldsBackOnlyWhatMayBeTheBeginOfAValue) {
  Shown shown(std::vector<std::string>{"hunter22"});
  shown.feed("Password: ");
  EXPECT_EQ(shown.out[0], "Password: ");
  EXPECT_FALSE(shown.redactor->holds(0));
  shown.feed("hun");
  EXPECT_EQ(shown.out[0], "Password: ");
  EXPECT_TRUE(shown.redactor->holds(0));
  shown.feed("ter");
  shown.feed("22\n");
  EXPECT_EQ(shown.out[0], "Password: ***\n");
  shown.feed("hunt");
  shown.feed("ing\n");
  EXPECT_EQ(shown.out[0], "Password: ***\nhunting\n");
}

TEST(Redactor, WhatComesAfterAPauseIsStillHidden) {
  Shown shown(std::vector<std::string>{"hunter22"});
  shown.feed("hun");
  shown.release();
  EXPECT_EQ(shown.out[0], "hun");
  shown.feed("ter22!");
  EXPECT_EQ(shown.out[0], "hun***!");
}

TEST(Redactor, StreamsAreApart) {
  Shown shown(std::vector<std::string>{"hunter22"});
  shown.feed("hunt", 0);
  shown.feed("er22", 1);
  shown.feed("er22", 0);
  shown.release(1);
  EXPECT_EQ(shown.out[0], "***");
  EXPECT_EQ(shown.out[1], "er22");
}

TEST(Redactor, EveryCutGivesTheSame) {
  std::mt19937 random(20240611);
  const auto below = [&](std::size_t n) {
    return random() % n;
  };
  for (int round = 0; round < 400; ++round) {
    // Few letters, so that values overlap, contain and follow each other.
    const auto text_of = [&](std::size_t bytes, std::size_t letters) {
      std::string out;
      for (std::size_t i = 0; i < bytes; ++i)
        out += static_cast<char>('a' + below(letters));
      return out;
    };
    const std::size_t letters = 1 + below(3);
    std::vector<std::string> values;
    for (std::size_t i = 0; i <= below(5); ++i)
      values.push_back(text_of(redacted_bytes_min + below(9), letters));
    std::string text;
    for (int i = 0; i < 12; ++i)
      text += below(2) ? values[below(values.size())] : text_of(below(8), letters + below(2));
    Shown shown(values);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t part = 1 + below(below(2) ? 3 : 40);
      shown.feed(text.substr(at, part));
      at += part;
    }
    shown.release();
    ASSERT_EQ(shown.out[0], by_searching(values, text)) << "round " << round << ": " << text;
    ASSERT_EQ(redacted(values, text), shown.out[0]);
  }
}

// A value and a text that cost a search n * m steps. The matcher needs some per byte.
TEST(Redactor, TakesLinearTime) {
  const std::string value = std::string(60'000, 'a') + "b";
  const std::string text(4'000'000, 'a');
  Shown shown(std::vector<std::string>{value});
  shown.feed(text);
  shown.release();
  EXPECT_EQ(shown.out[0].size(), text.size());
}

TEST(Redactor, RefusesWhatIsMalformed) {
  Redactor redactor;
  EXPECT_NE(redactor.take("\x09\0\0\0abc", 7), nullptr);
  Redactor other;
  EXPECT_NE(other.take("ab", 2), nullptr);
  EXPECT_FALSE(other.active());
}

TEST(Redactor, ForgetsTheValues) {
  Shown shown(std::vector<std::string>{"hunter22"});
  shown.redactor->forget();
  EXPECT_FALSE(shown.redactor->active());
  EXPECT_FALSE(shown.redactor->holds(0));
}

TEST(RedactedValues, AreTheValuesTheirBase64AndTheirLines) {
  const std::string key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nshort\n-----END KEY-----\n";
  Shown shown(Shown::Packed{agent::redacted_values({{"TOKEN", "", base64("hf_abcdef\n")},
                                                    {"", "/run/key", base64(key)},
                                                    {"PIN", "", base64("1234")}})});
  shown.feed("hf_abcdef " + base64("hf_abcdef") + " 1234\r\nMIIEvQIBADANBgkq\r\nshort\n" + key);
  shown.release();
  EXPECT_EQ(shown.out[0], "*** *** 1234\r\n***\r\nshort\n***\n");
}

}  // namespace
}  // namespace billow::supervise
