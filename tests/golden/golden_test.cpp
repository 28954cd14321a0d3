// The format is frozen: what 0.1 wrote, today's program reads to the same values. Each file under
// 0.1/ was written by that release (see README.md) and is never written again.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "agent/task/order_record.h"
#include "base/file.h"
#include "core/control/core.h"
#include "core/wire/agent_v1.h"
#include "core/wire/codec.h"
#include "store/sqlite/sqlite_store.h"

namespace billow {
namespace {

const std::string golden = BILLOW_GOLDEN "/0.1/";

std::vector<Json> lines_of(const std::string& name) {
  std::ifstream in(golden + name);
  std::vector<Json> lines;
  for (std::string line; std::getline(in, line);) {
    auto json = parse_json(line);
    EXPECT_TRUE(json) << name << ": " << line;
    if (json)
      lines.push_back(std::move(*json));
  }
  EXPECT_FALSE(lines.empty()) << name << " is missing or empty";
  return lines;
}

// The first place where today's document does not say what the old one said; empty if it says all
// of it. Fields that were added since are ignored.
std::string missing_from(const Json& today, const Json& old, const std::string& path) {
  if (old.is_object()) {
    for (const auto& [name, value] : old.members()) {
      const Json* member = today.find(name);
      const bool nothing = value.is_object() && value.members().empty();
      if (!member && nothing)
        continue;
      if (!member)
        return path + "." + name + " is gone; it was " + value.dump();
      if (std::string found = missing_from(*member, value, path + "." + name); !found.empty())
        return found;
    }
    return "";
  }
  if (old.is_array() && today.is_array() && today.size() == old.size()) {
    for (std::size_t i = 0; i < old.size(); ++i)
      if (std::string found =
              missing_from(today.items()[i], old.items()[i], path + "[" + std::to_string(i) + "]");
          !found.empty())
        return found;
    return "";
  }
  return today.dump() == old.dump() ? "" : path + " is " + today.dump() + "; it was " + old.dump();
}

template <class T>
Json whole(const T& value) {
  auto json = parse_json(wire::to_json_text(value, wire::Omit::nothing));
  EXPECT_TRUE(json);
  return json ? std::move(*json) : Json();
}

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
  const auto text = read_file(golden + "order", 1 << 20);
  ASSERT_TRUE(text);
  const auto order = wire::from_json_text<agent::OrderRecord>(*text);
  ASSERT_TRUE(order) << order.error().message;
  EXPECT_EQ(missing_from(whole(*order), *parse_json(*text), "order"), "");
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

// ---- a data directory
class DataDir {
 public:
  DataDir() {
    std::string pattern = ::testing::TempDir() + "/billow-golden-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
    std::filesystem::copy(golden + "store", path_, std::filesystem::copy_options::recursive);
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
  }
  ~DataDir() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Golden, ADataDirectoryReplaysToTheSnapshotOf01) {
  DataDir dir;
  auto store = SqliteStore::open({.data_dir = dir.path(), .ballast_bytes = 4096});
  ASSERT_TRUE(store) << store.error().message;
  const Journal& journal = (*store)->journal();
  const auto snapshot = journal.load_snapshot();
  ASSERT_TRUE(snapshot && *snapshot);

  control::Core core(control::State{}, {});
  std::set<std::string> kinds;
  Seq last = 0;
  const auto read = journal.read(0, 100'000, [&](const Record& record) {
    if (record.seq > (*snapshot)->seq)
      return false;
    auto event = control::decode_event(record.seq, record.at, record.kind, record.payload);
    EXPECT_TRUE(event) << event.error().message;
    if (!event)
      return false;
    kinds.insert(record.kind);
    core.replay(*event);
    last = record.seq;
    return true;
  });
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(last, (*snapshot)->seq);
  EXPECT_GE(kinds.size(), 81u);
  const Status sound = control::check_invariants(core.state());
  EXPECT_TRUE(sound) << sound.error().message;

  const auto restored = control::restore((*snapshot)->bytes);
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ(control::image(core.state()), control::image(*restored))
      << "the journal and the snapshot of 0.1 now give different states";
  const auto old = parse_json((*snapshot)->bytes);
  const auto today = parse_json(control::image(core.state()));
  ASSERT_TRUE(old && today);
  EXPECT_EQ(missing_from(*today, *old, "state"), "");
  const auto again = control::restore(control::image(core.state()));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(control::image(*again), control::image(core.state()));
}

}  // namespace
}  // namespace billow
