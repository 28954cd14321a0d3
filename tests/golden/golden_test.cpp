// The format is frozen: what 0.1 wrote, today's program reads to the same values. Each file under
// 0.1/ was written by that release (see README.md) and is never written again.
#include <map>
#include <set>

#include "agent/task/order_record.h"
#include "core/control/core.h"
#include "core/wire/agent_v1.h"
#include "tests/golden/golden_support.h"

namespace billow {
namespace {
using namespace golden_test;

TEST(Golden, EveryFieldOfEveryEventReadsBack) {
  std::set<std::string> kinds;
  for (const Json& line : lines_of("events.jsonl")) {
    const std::string kind(line["kind"].str_or(""));
    kinds.insert(kind);
    const auto event = control::decode_event(1, {1}, kind, line["payload"].dump());
    ASSERT_TRUE(event) << event.error().message;
    EXPECT_EQ(event->actor, "user:ana");
    EXPECT_EQ(event->request_id, "r-1");
    EXPECT_EQ(event->billed.ns, 1'700'000'000'000'000'001);
    const Json today = visit([](const auto& body) { return whole(body); }, event->body);
    EXPECT_EQ(missing_from(today, line["payload"]["event"], kind), "");
    const auto again = control::decode_event(1, {1}, kind, control::encode_event(*event));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(visit([](const auto& body) { return whole(body); }, again->body).dump(), today.dump())
        << "what is written today reads back as something else: " << kind;
  }
  EXPECT_EQ(kinds.size(), 86u);
}

template <class V>
void check_messages(const std::string& file, std::size_t count) {
  const auto lines = lines_of(file);
  EXPECT_EQ(lines.size(), count);
  for (const Json& line : lines) {
    const std::string type(line["type"].str_or(""));
    const auto message = wire::variant_from_json<V>(type, line["message"]);
    ASSERT_TRUE(message) << message.error().message;
    const Json today = visit([](const auto& m) { return whole(m); }, *message);
    EXPECT_EQ(missing_from(today, line["message"], type), "");
  }
}
TEST(Golden, EveryMessageToAnAgentReadsBack) {
  check_messages<wire::agent_v1::ToAgent>("to_agent.jsonl", 18);
}
TEST(Golden, EveryMessageOfAnAgentReadsBack) {
  check_messages<wire::agent_v1::FromAgent>("from_agent.jsonl", 9);
}

TEST(Golden, AnOrderInATaskDirectoryReadsBack) {
  const std::string text = text_of("order");
  const auto order = wire::from_json_text<agent::OrderRecord>(text);
  ASSERT_TRUE(order) << order.error().message;
  EXPECT_EQ(missing_from(whole(*order), *parse_json(text), "order"), "");
}

// ---- defaults
template <class T>
std::string type_name() {
  const std::string text = __PRETTY_FUNCTION__;
  const auto from = text.find("T = ") + 4;
  return text.substr(from, text.find_first_of(";]", from) - from);
}

template <class T>
void collect(std::map<std::string, Json>& into);
struct Collector {
  std::map<std::string, Json>& into;
  template <class M>
  void operator()(const char*, M&) {
    collect<std::remove_const_t<M>>(into);
  }
};
template <class T>
void collect(std::map<std::string, Json>& into) {
  using namespace wire::detail;
  if constexpr (IsOptional<T>::value || IsVector<T>::value)
    collect<typename T::value_type>(into);
  else if constexpr (IsSharedConst<T>::value)
    collect<std::remove_const_t<typename T::element_type>>(into);
  else if constexpr (IsStringMap<T>::value)
    collect<typename T::mapped_type>(into);
  else if constexpr (wire::HasFields<T>) {
    T made{};
    if (!into.emplace(type_name<T>(), whole(made)).second)
      return;
    Collector collector{into};
    T::fields(made, collector);
  }
}

// A default is part of the format: 0.1 left out every value that equals its default, so a changed
// default gives old records another meaning. Do not change the golden file to make this pass: keep
// the default, and set the new one where the value is made (an option, a command).
TEST(Golden, DefaultsAreThoseOf01) {
  std::map<std::string, Json> today;
  const auto all = [&]<class T>() {
    collect<T>(today);
  };
  EventKinds::each(all);
  wire::agent_v1::ToAgentKinds::each(all);
  wire::agent_v1::FromAgentKinds::each(all);
  collect<agent::OrderRecord>(today);
  collect<Job>(today);
  collect<Machine>(today);
  collect<Node>(today);
  collect<Endpoint>(today);
  std::size_t compared = 0;
  for (const Json& line : lines_of("defaults.jsonl")) {
    const std::string name(line["struct"].str_or(""));
    const auto found = today.find(name);
    if (found == today.end()) {
      ADD_FAILURE() << "struct " << name << " of 0.1 is gone or has another name";
      continue;
    }
    ++compared;
    EXPECT_EQ(missing_from(found->second, line["default"], name), "");
  }
  EXPECT_EQ(compared, 169u);
}

}  // namespace
}  // namespace billow
