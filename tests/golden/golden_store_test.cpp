// The journals that 0.1 wrote, in SQLite and in PostgreSQL, replay to the states it had. Each state
// is compared whole with the snapshot of 0.1, and by a hash that stands here: neither the program
// nor the files can change together unnoticed.
#include <filesystem>
#include <set>

#include "base/crypto.h"
#include "core/control/core.h"
#include "tests/golden/golden_support.h"
#include "tests/unit/store/store_test_support.h"

namespace billow {
namespace {
using namespace golden_test;

// SHA-256 of the states that 0.1 had at the end of its two journals.
constexpr const char* sqlite_state =
    "85d8bae96223055aef32871cd1830b93d22deb37df7140e174f7624b1cc911ba";
constexpr const char* postgres_state =
    "4d8cb27c4b500ecc54228aa9297425dc761aaf652ff9fd744edf700c7db872cc";

// Today's document, with only the members that the old one has and in its order: what was added
// since does not count.
Json in_the_shape_of(const Json& today, const Json& old) {
  if (old.is_object() && today.is_object()) {
    Json out = Json::object();
    for (const auto& [name, value] : old.members())
      if (const Json* member = today.find(name))
        out.set(name, in_the_shape_of(*member, value));
    return out;
  }
  if (old.is_array() && today.is_array() && today.size() == old.size()) {
    Json out = Json::array();
    for (std::size_t i = 0; i < old.size(); ++i)
      out.push(in_the_shape_of(today.items()[i], old.items()[i]));
    return out;
  }
  return today;
}

// Today's document with the workload that placement had learned in the old one: a hint, which is
// learned by another rule since.
Json with_workload_of(Json today, const Json& old) {
  for (const char* name : {"recent", "typical", "learned_starts", "learned_next_at"})
    if (const Json* member = old.find(name))
      today.set(name, *member);
  return today;
}

// A state without that workload, and without what heads of today learn from the machines of their
// pools. The journal of 0.1 has it, its snapshot does not; a head that starts from that snapshot
// learns it again.
std::string comparable(control::State state) {
  state.index.set_learned({});
  for (auto& [id, pool] : state.pools) {
    pool.learned.clear();
    pool.recent_orders.clear();
    pool.ended.clear();
  }
  return control::image(state);
}

// Replays a journal up to its snapshot. Returns the kinds of events that it has.
std::set<std::string> expect_replay(const Journal& journal, const std::string& hash) {
  std::set<std::string> kinds;
  const auto snapshot = journal.load_snapshot();
  EXPECT_TRUE(snapshot && *snapshot);
  if (!snapshot || !*snapshot)
    return kinds;
  control::Core core(control::State{}, {});
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
  EXPECT_TRUE(read) << read.error().message;
  EXPECT_EQ(last, (*snapshot)->seq);
  const Status sound = control::check_invariants(core.state());
  EXPECT_TRUE(sound) << sound.error().message;

  const std::string image = control::image(core.state());
  auto old_state = control::restore((*snapshot)->bytes);
  auto new_state = control::restore(image);
  EXPECT_TRUE(old_state) << old_state.error().message;
  EXPECT_TRUE(new_state) << new_state.error().message;
  if (old_state && new_state) {
    EXPECT_EQ(control::image(*new_state), image);
    const std::string a = comparable(std::move(*old_state)), b = comparable(std::move(*new_state));
    const auto same = std::ranges::mismatch(a, b).in1 - a.begin();
    const auto around = [&](const std::string& text) {
      return text.substr(static_cast<std::size_t>(std::max<std::ptrdiff_t>(same - 200, 0)), 400);
    };
    EXPECT_TRUE(a == b) << "the journal and the snapshot of 0.1 now give different states:\n"
                        << around(a) << "\n"
                        << around(b);
  }
  const auto old = parse_json((*snapshot)->bytes);
  const auto parsed = parse_json(image);
  EXPECT_TRUE(old && parsed);
  if (old && parsed) {
    const Json today = with_workload_of(*parsed, *old);
    EXPECT_EQ(missing_from(today, *old, "state"), "");
    EXPECT_EQ(sha256_hex(in_the_shape_of(today, *old).dump()), hash);
  }
  return kinds;
}

TEST(Golden, ADataDirectoryReplaysToTheSnapshotOf01) {
  const store_test::TempDir dir;
  std::filesystem::copy(golden + "store", dir.path(), std::filesystem::copy_options::recursive);
  std::filesystem::permissions(dir.path(), std::filesystem::perms::owner_all);
  auto store = SqliteStore::open({.data_dir = dir.path(), .ballast_bytes = 4096});
  ASSERT_TRUE(store) << store.error().message;
  std::set<std::string> kinds = expect_replay((*store)->journal(), sqlite_state);
  EXPECT_EQ(kinds.size(), 81u);

  // What that journal has no cause for is in the one of PostgreSQL.
  const std::string dump = text_of("postgres.sql");
  for (const Json& line : lines_of("events.jsonl")) {
    const std::string kind(line["kind"].str_or(""));
    EXPECT_TRUE(kinds.contains(kind) || dump.find(", '" + kind + "', '{") != std::string::npos)
        << "no journal of 0.1 has a " << kind;
  }
}

// Run by tests/support/with_postgres.py, which starts a server.
TEST(GoldenPostgres, ADatabaseReplaysToTheSnapshotOf01) {
  if (store_test::test_postgres().empty())
    GTEST_SKIP() << "BILLOW_TEST_POSTGRES names no server";
  store_test::Place place("postgres");
  store_test::Place::sql(text_of("postgres.sql"));
  const auto store = place.open();
  const std::set<std::string> kinds = expect_replay(store->journal(), postgres_state);
  for (const char* kind :
       {"job_held", "node_released", "reservation_moved", "task_rerated", "webhook_delivered"})
    EXPECT_TRUE(kinds.contains(kind)) << kind;
}

}  // namespace
}  // namespace billow
