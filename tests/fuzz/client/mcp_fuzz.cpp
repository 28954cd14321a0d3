// libFuzzer over what an MCP client sends: whatever the bytes, each message gets at most one
// answer, every answer is one line of JSON, and nothing crashes. Built with clang and
// -DBILLOW_FUZZ=ON only, by `./dev fuzz`.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "client/mcp/session.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace billow::client::mcp;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  LineReader lines;
  Session session("fuzz", billow::Json::Array{billow::Json::object({{"name", "run"}})});
  // In two pieces: a message may arrive in any number of reads.
  const std::size_t half = size / 2;
  for (const std::string_view piece : {input.substr(0, half), input.substr(half)}) {
    lines.feed(piece);
    while (const auto line = lines.next()) {
      if (line->too_long)
        continue;
      const Step step = session.take(read_message(line->text));
      BILLOW_CHECK(step.answers.size() + (step.call ? 1 : 0) <= 1, "one answer for one message");
      for (const std::string& answer : step.answers) {
        BILLOW_CHECK(answer.find('\n') == std::string::npos, "an answer is one line");
        BILLOW_CHECK(billow::parse_json(answer).has_value(), "an answer is JSON");
      }
    }
  }
  return 0;
}
