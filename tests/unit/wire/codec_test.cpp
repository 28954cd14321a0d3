#include "core/wire/codec.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/model/event.h"
#include "core/wire/agent_v1.h"

namespace billow::wire {
namespace {

TEST(Codec, KeepsWhatDiffersFromTheDefaultEvenWhenItIsZero) {
  JobSpec spec;
  spec.argv = {"python", "train.py"};
  spec.nodes = 0;           // default 1
  spec.retry_backoff = {};  // default 1 s
  spec.resources.gpus = 2;
  spec.array = ArraySpec{0, 9, 1, 3};
  spec.labels["team"] = "a\"b";
  const std::string text = to_json_text(spec);
  const auto back = from_json_text<JobSpec>(text);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, spec) << text;
  EXPECT_EQ(text.find("stop_grace_ns"), std::string::npos) << "defaults are left out: " << text;
  Node node;
  node.reachable = false;
  EXPECT_FALSE(from_json_text<Node>(to_json_text(node))->reachable);
  Job job;
  job.state = JobState::held;
  EXPECT_EQ(from_json_text<Job>(to_json_text(job))->state, JobState::held);
}

// In journal and snapshots a value equal to its default is written unless it is zero: the record
// keeps its meaning when a default is changed later.
TEST(Codec, StoredRecordsNameDefaultsThatAreNotZero) {
  JobSpec spec;
  spec.argv = {"true"};
  const auto stored = parse_json(to_json_text(spec, Omit::zeros));
  ASSERT_TRUE(stored);
  EXPECT_EQ((*stored)["nodes"].int_or(0), 1);
  EXPECT_EQ((*stored)["stop_grace_ns"].int_or(0), seconds(10).ns);
  EXPECT_FALSE(stored->find("priority")) << "zero needs no words";
  EXPECT_FALSE(stored->find("labels"));
  const auto back = from_json<JobSpec>(*stored);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, spec);
}

// The longest names and numbers, and the least numbers.
struct Extremes {
  std::int64_t most = 0, least = 0;
  std::uint64_t most_unsigned = 0;
  std::vector<std::int64_t> small;
  std::int32_t of_a_long_name = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("most", s.most);
    v("least", s.least);
    v("most_unsigned", s.most_unsigned);
    v("small", s.small);
    v("a_name_that_is_longer_than_any_other_that_is_in_use_and_that_fits_into_no_small_buffer",
      s.of_a_long_name);
  }
};
TEST(Codec, WritesTheLongestNamesAndNumbers) {
  const Extremes extremes{.most = INT64_MAX,
                          .least = INT64_MIN,
                          .most_unsigned = UINT64_MAX,
                          .small = {0, -1, 9, 10, 99, 100, -100, 1'790'000'000'123'456'789},
                          .of_a_long_name = INT32_MIN};
  EXPECT_EQ(to_json_text(extremes),
            R"({"most":9223372036854775807,"least":-9223372036854775808,)"
            R"("most_unsigned":18446744073709551615,)"
            R"("small":[0,-1,9,10,99,100,-100,1790000000123456789],)"
            R"("a_name_that_is_longer_than_any_other_that_is_in_use_and_that_fits_into_no_small_)"
            R"(buffer":-2147483648})");
}

TEST(Codec, ErrorsNameTheWholePath) {
  const auto deep = from_json_text<JobSpec>(R"({"after":[{"job":1},{"kind":"never"}]})");
  ASSERT_FALSE(deep);
  EXPECT_TRUE(deep.error().message.starts_with("after[1].kind must be one of "))
      << deep.error().message;
}

TEST(OneOf, CopiesMovesAndVisitsWhatItHolds) {
  EventBody body = JobEnded{.job = JobId(7), .reason = "done"};
  EventBody copy = body;
  EXPECT_EQ(get<JobEnded>(copy).reason, "done");
  EventBody moved = std::move(body);
  EXPECT_EQ(get<JobEnded>(moved).job, JobId(7));
  copy = JobReady{JobId(8)};
  EXPECT_EQ(get_if<JobEnded>(&copy), nullptr);
  EXPECT_EQ(get<JobReady>(copy).job, JobId(8));
  copy = moved;
  EXPECT_STREQ(variant_kind(copy), "job_ended");
  EXPECT_TRUE(holds_alternative<HeadStarted>(EventBody()));
}

TEST(Codec, StrictReadingNamesTheFieldAndTheNearestKnownOne) {
  const auto unknown = from_json_text<JobSpec>(R"({"resources":{"gpu":1}})", true);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message, "unknown field \"resources.gpu\"");
  EXPECT_EQ(unknown.error().hint, "did you mean \"gpus\"?");
  EXPECT_TRUE(from_json_text<JobSpec>(R"({"resources":{"gpu":1}})", false));
  for (const char* bad : {R"({"nodes":-1})", R"({"nodes":1.5})", R"({"nodes":99999999999})",
                          R"({"argv":"x"})", R"({"argv":[1]})", R"({"spot":1})",
                          R"({"after":[{"kind":"never"}]})", R"([])", R"({"rows":70000})"})
    EXPECT_FALSE(from_json_text<JobSpec>(bad)) << bad;
}

TEST(AgentProtocol, FramesRoundTripAndBadOnesAreRefused) {
  agent_v1::Start start;
  start.task = TaskId(7);
  start.argv = {"echo", "hi"};
  start.env["A"] = "b";
  start.gpus = {{3, {250, 20480}}};
  start.use_stdin = true;
  const std::string frame = agent_v1::encode(start, "blob\0x");
  const auto back = agent_v1::decode_to_agent(frame);
  ASSERT_TRUE(back);
  const auto& message = get<agent_v1::Start>(back->message);
  EXPECT_EQ(message.gpus, start.gpus);
  EXPECT_EQ(message.env, start.env);
  EXPECT_EQ(back->blob, "blob");
  for (std::size_t n = 0; n < frame.size() - 4; ++n)
    EXPECT_FALSE(agent_v1::decode_to_agent(std::string_view(frame).substr(0, n))) << n;
  EXPECT_FALSE(agent_v1::decode_from_agent(frame));
}

// The version is read before anything is agreed on, perhaps by a program much older or newer: what
// is not written must mean the first version on both sides, and every other must be written.
TEST(AgentProtocol, AMissingVersionIsTheFirst) {
  const auto framed = [](const std::string& json) {
    const auto size = static_cast<std::uint32_t>(json.size());
    std::string out;
    for (int shift = 0; shift < 32; shift += 8)
      out += static_cast<char>(size >> shift & 0xff);
    return out + json;
  };
  const auto hello = agent_v1::decode_from_agent(framed(R"({"type":"hello"})"));
  ASSERT_TRUE(hello);
  EXPECT_EQ(get<agent_v1::Hello>(hello->message).version, 1);
  const auto welcome = agent_v1::decode_to_agent(framed(R"({"type":"welcome"})"));
  ASSERT_TRUE(welcome);
  EXPECT_EQ(get<agent_v1::Welcome>(welcome->message).version, 1);
  for (const int version : {2, 3, 1000}) {
    agent_v1::Hello says;
    says.version = version;
    EXPECT_NE(agent_v1::encode(says).find(fmt::format("\"version\":{}", version)),
              std::string::npos);
    agent_v1::Welcome answers;
    answers.version = version;
    EXPECT_NE(agent_v1::encode(answers).find(fmt::format("\"version\":{}", version)),
              std::string::npos);
  }
}

}  // namespace
}  // namespace billow::wire
