// The reader of written text reads what the reader of documents reads, or leaves the text to it.
#include "core/wire/text_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/model/event.h"
#include "core/wire/agent_v1.h"

namespace billow::wire {
namespace {

JobSpec a_spec() {
  JobSpec spec;
  spec.argv = {"python", "train.py", "a \"b\" \\ c\n\t", "größer ≥ 1"};
  spec.nodes = 3;
  spec.stop_grace = seconds(7);
  spec.resources.gpus = 2;
  spec.resources.share.milli = 250;
  spec.array = ArraySpec{0, 9, 1, 3};
  spec.labels = {{"region", "eu"}, {"team", "a\"b"}};
  spec.priority = -2;
  spec.spot = true;
  spec.after = {{JobId(7), AfterKind::failed}};
  return spec;
}

// Either it does not read the text, or both read the same.
template <class T>
bool reads_alike(const std::string& text) {
  T value{};
  const bool read = read_as_written(text, value);
  const Result<T> document = from_json_text<T>(text);
  if (read) {
    EXPECT_TRUE(document) << text << ": " << document.error().message;
    EXPECT_EQ(to_json_text(value, Omit::nothing), to_json_text(*document, Omit::nothing)) << text;
  }
  const Result<T> either = from_written_text<T>(text);
  EXPECT_EQ(either.has_value(), document.has_value()) << text;
  if (!either && !document) {
    EXPECT_EQ(either.error().message, document.error().message) << text;
  }
  return read;
}

TEST(TextReader, ReadsWhatIsWritten) {
  for (const Omit omit : {Omit::defaults, Omit::zeros, Omit::nothing})
    EXPECT_TRUE(reads_alike<JobSpec>(to_json_text(a_spec(), omit)));
  Node node;
  node.id = NodeId(7);
  node.joined_at = {1'790'000'000'123'456'789};
  node.offer.gpus = {{.index = 0, .uuid = "a", .type = "H100"}, {.index = 1, .uuid = "b"}};
  for (const Omit omit : {Omit::defaults, Omit::zeros, Omit::nothing})
    EXPECT_TRUE(reads_alike<Node>(to_json_text(node, omit)));
}

TEST(TextReader, ReadsEveryEventAndMessage) {
  EventKinds::each([]<class T>() {
    for (const Omit omit : {Omit::zeros, Omit::nothing})
      EXPECT_TRUE(reads_alike<T>(to_json_text(T{}, omit))) << T::kind;
    EXPECT_NE(VariantTextReader<EventBody>::find(T::kind), nullptr) << T::kind;
  });
  agent_v1::FromAgentKinds::each(
      []<class T>() { EXPECT_TRUE(reads_alike<T>(to_json_text(T{}, Omit::nothing))) << T::kind; });
  agent_v1::ToAgentKinds::each(
      []<class T>() { EXPECT_TRUE(reads_alike<T>(to_json_text(T{}, Omit::nothing))) << T::kind; });
}

TEST(TextReader, LeavesEveryOtherFormToTheReaderOfDocuments) {
  for (const char* other : {"",
                            "{",
                            "{}}",
                            " {}",
                            "{} ",
                            "[]",
                            "null",
                            R"({"nodes": 3})",
                            R"({"nodes":03})",
                            R"({"nodes":3.0})",
                            R"({"nodes":3e0})",
                            R"({"nodes":-1})",
                            R"({"nodes":-0})",
                            R"({"nodes":99999999999999999999})",
                            R"({"nodes":4294967296})",
                            R"({"nodes":"3"})",
                            R"({"nodes":3,})",
                            R"({"nodes":3,"nodes":4})",
                            R"({"nodes":4,"argv":["a"]})",
                            R"({"no such":1})",
                            R"({"nodes":3,"zzz":1})",
                            R"({"argv":["a",]})",
                            R"({"argv":[null]})",
                            R"({"argv":["\u0041"]})",
                            R"({"argv":["\b"]})",
                            R"({"argv":["a})",
                            "{\"argv\":[\"\xff\"]}",
                            "{\"argv\":[\"a\nb\"]}",
                            R"({"labels":{"b":"1","a":"2"}})",
                            R"({"labels":{"a":"1","a":"2"}})",
                            R"({"spot":tru})",
                            R"({"spot":1})"})
    EXPECT_FALSE(reads_alike<JobSpec>(other)) << other;
}

TEST(TextReader, AMemberThatIsNullKeepsItsValue) {
  EXPECT_TRUE(reads_alike<JobSpec>(R"({"nodes":null})"));
  JobSpec spec;
  ASSERT_TRUE(read_as_written(R"({"nodes":null})", spec));
  EXPECT_EQ(spec.nodes, JobSpec().nodes);
}

struct Weighed {
  double weight = 0.5;
  std::uint64_t count = 1;
  std::int64_t ns = 2;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("weight", s.weight);
    v("count", s.count);
    v("ns", s.ns);
  }
};

TEST(TextReader, NumbersReadAlike) {
  for (const char* weight :
       {"0", "0.0", "-0.0", "-1.5", "1e3", "1E-3", "12345.678901234567", "7", "-0", "1e999"})
    EXPECT_TRUE(reads_alike<Weighed>(fmt::format(R"({{"weight":{}}})", weight)));
  for (const char* weight : {".5", "1.", "1e", "+1", "00.5", "--1", "1.5.2"})
    EXPECT_FALSE(reads_alike<Weighed>(fmt::format(R"({{"weight":{}}})", weight)));
  EXPECT_TRUE(reads_alike<Weighed>(R"({"count":1790000000123456789,"ns":-9223372036854775807})"));
  EXPECT_FALSE(reads_alike<Weighed>(R"({"ns":9223372036854775808})"));
  EXPECT_FALSE(reads_alike<Weighed>(R"({"ns":-9223372036854775809})"));
  EXPECT_TRUE(reads_alike<Weighed>(R"({"count":18446744073709551615})"));
  EXPECT_FALSE(reads_alike<Weighed>(R"({"count":18446744073709551616})"));
  reads_alike<Weighed>(R"({"ns":-9223372036854775808})");
}

// Damaged text is never read as something else.
TEST(TextReader, DamagedTextReadsAlike) {
  const std::string text = to_json_text(a_spec(), Omit::zeros);
  std::size_t read = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char c : std::string_view("\"\\{}[],:0-9.en \x01\x80\xc3")) {
      std::string damaged = text;
      damaged[at] = c;
      read += reads_alike<JobSpec>(damaged) ? 1 : 0;
    }
    read += reads_alike<JobSpec>(text.substr(0, at)) ? 1 : 0;
    read += reads_alike<JobSpec>(text.substr(0, at) + text.substr(at + 1)) ? 1 : 0;
  }
  EXPECT_GT(read, 0u) << "a changed digit or letter is still in the form";
}

}  // namespace
}  // namespace billow::wire
