// The protocol of `billow mcp`, without a head.
#include "client/mcp/session.h"
#include "client/mcp/tools.h"

#include <gtest/gtest.h>

namespace billow::client::mcp {
namespace {

Json answer(Session& session, std::string_view line) {
  const Step step = session.take(read_message(line));
  if (step.answers.size() != 1)
    return {};
  return parse_json(step.answers.front()).value_or(Json());
}

TEST(Mcp, NegotiatesTheProtocolVersion) {
  Session session("1.0", tool_list());
  const auto agreed = [&](const char* wanted) {
    return std::string(
        answer(session, Json::object({{"jsonrpc", "2.0"},
                                      {"id", 1},
                                      {"method", "initialize"},
                                      {"params", Json::object({{"protocolVersion", wanted}})}})
                            .dump())
            .at("result", "protocolVersion")
            .str_or(""));
  };
  EXPECT_EQ(agreed("2025-06-18"), "2025-06-18");
  EXPECT_EQ(agreed("2025-03-26"), "2025-03-26");
  EXPECT_EQ(agreed("2024-11-05"), "2024-11-05");
  EXPECT_EQ(agreed("2030-01-01"), "2025-06-18") << "the newest that is known here";
}

TEST(Mcp, KnowsWhetherTheClientCanAskItsUser) {
  Session session("1.0", tool_list());
  EXPECT_FALSE(session.can_elicit());
  (void)answer(session, R"({"jsonrpc":"2.0","id":1,"method":"initialize",)"
                        R"("params":{"capabilities":{"elicitation":{}}}})");
  EXPECT_TRUE(session.can_elicit());
}

TEST(Mcp, AnswersWhatIsWrongWithAMessage) {
  Session session("1.0", tool_list());
  const auto code = [&](std::string_view line) {
    return answer(session, line).at("error", "code").int_or(0);
  };
  EXPECT_EQ(code("{"), -32700);
  EXPECT_EQ(code("[]"), -32600);
  EXPECT_EQ(code(R"({"id":1,"method":"ping"})"), -32600);
  EXPECT_EQ(code(R"({"jsonrpc":"2.0","id":1,"method":"ping","params":[]})"), -32602);
  EXPECT_EQ(code(R"({"jsonrpc":"2.0","id":1,"method":"prompts/list"})"), -32601);
  EXPECT_EQ(code(R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"rm"}})"),
            -32602);
  EXPECT_TRUE(session.take(read_message(R"({"jsonrpc":"2.0","method":"notifications/x"})"))
                  .answers.empty());
}

TEST(Mcp, ATooLongLineIsDroppedAndTheNextIsRead) {
  LineReader lines;
  lines.feed(std::string(line_bytes_max + 10, 'x'));
  const auto dropped = lines.next();
  ASSERT_TRUE(dropped);
  EXPECT_TRUE(dropped->too_long);
  lines.feed(std::string(100, 'x') + "\n{}\n");
  const auto next = lines.next();
  ASSERT_TRUE(next);
  EXPECT_EQ(next->text, "{}");
  EXPECT_FALSE(lines.next());
}

TEST(Mcp, EveryToolHasASchemaAndJobOptionsComeFromTheirTable) {
  const Json tools = tool_list();
  EXPECT_EQ(tools.size(), 12u);
  for (const Json& tool : tools.items()) {
    EXPECT_FALSE(tool["description"].str_or("").empty());
    EXPECT_EQ(tool.at("inputSchema", "type").str_or(""), "object");
    if (tool["name"].str_or("") == "submit") {
      const Json& options = tool["inputSchema"]["properties"]["options"]["properties"];
      EXPECT_TRUE(options.find("gpu-type"));
      EXPECT_TRUE(options.find("array"));
    }
  }
}

TEST(Mcp, AFailureSaysWhatToDo) {
  const Json failed = tool_failure({Code::exhausted, "no money is left", "use --time 5m"}, {});
  EXPECT_TRUE(failed["isError"].bool_or(false));
  EXPECT_EQ(failed.at("structuredContent", "error", "remedy").str_or(""), "use --time 5m");
}

}  // namespace
}  // namespace billow::client::mcp
