// What 0.1 left on a node and beside a gateway: task directories, written by its agent and its
// supervisor, and the table that a gateway serves from while the head is away.
#include <filesystem>

#include "agent/isolate/task_spec.h"
#include "agent/task/log_reader.h"
#include "agent/task/task_dir.h"
#include "gateway/table.h"
#include "supervise/spec.h"
#include "tests/golden/golden_support.h"
#include "tests/unit/store/store_test_support.h"

namespace billow {
namespace {
using namespace golden_test;

TEST(GoldenNode, ATaskDirectorySaysHowItsTaskEnded) {
  const store_test::TempDir copy;  // looking at a directory opens its lock for writing
  std::filesystem::copy(golden + "tasks", copy / "tasks", std::filesystem::copy_options::recursive);
  auto dirs = agent::TaskDirs::open(copy / "tasks");
  ASSERT_TRUE(dirs) << dirs.error().message;
  const auto task = dirs->find(TaskId(7));
  ASSERT_TRUE(task) << task.error().message;
  EXPECT_EQ(task->presence, agent::TaskPresence::ended);
  EXPECT_EQ(task->meta, R"({"job":7})");
  EXPECT_EQ(task->supervisor_pid, 30785);
  ASSERT_TRUE(task->exit);
  const supervise::ExitRecord& exit = *task->exit;
  EXPECT_EQ(exit.kind, static_cast<std::uint32_t>(supervise::ExitKind::exited));
  EXPECT_EQ(exit.code, 3);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_EQ(exit.cause, static_cast<std::uint32_t>(supervise::EndCause::itself));
  EXPECT_EQ(exit.started_wall_ns, 1794808161700411532);
  EXPECT_EQ(exit.ended_wall_ns, 1794808161720382872);
  EXPECT_EQ(exit.user_us, 883);
  EXPECT_EQ(exit.rss_max_kib, 1300);
  EXPECT_EQ(exit.log_end, 40u);
  EXPECT_EQ(exit.log_dropped_bytes, 0u);
}

TEST(GoldenNode, ALogReadsBack) {
  agent::LogReader log(golden + "tasks/7");
  const auto chunk = log.read(0, 1 << 16);
  ASSERT_TRUE(chunk) << chunk.error().message;
  EXPECT_TRUE(chunk->at_end);
  EXPECT_EQ(chunk->next_offset, 40u);
  std::vector<std::pair<wire::LogStream, std::string>> lines;
  agent::for_each_record(chunk->frames, chunk->offset, [&](const agent::LogRecord& record) {
    lines.emplace_back(record.stream, std::string(record.data));
  });
  const std::vector<std::pair<wire::LogStream, std::string>> expected = {
      {wire::LogStream::out, "out\n"}, {wire::LogStream::err, "err\n"}};
  EXPECT_EQ(lines, expected);
}

TEST(GoldenNode, TheAgentReadsWhereATaskRuns) {
  const auto record = agent::record_of_spec(text_of("full_spec"));
  ASSERT_TRUE(record) << record.error().message;
  EXPECT_EQ(record->cwd, "/home/ana");
  EXPECT_EQ(record->variable("BILLOW_JOB_ID"), "7");
  ASSERT_TRUE(record->identity);
  EXPECT_EQ(record->identity->uid, 1000u);
  EXPECT_EQ(record->identity->gid, 1001u);
  EXPECT_EQ(record->identity->groups, (std::vector<std::uint32_t>{1002, 1003}));
  EXPECT_EQ(agent::meta_of_spec(text_of("full_spec")), R"({"job":7})");
}

TEST(GoldenNode, TheSupervisorReadsEveryTagOfASpec) {
  const std::string bytes = text_of("full_spec");
  std::vector<const char*> pointers(supervise::spec_pointers_needed(bytes.size()));
  const auto spec = std::make_unique<supervise::Spec>();
  ASSERT_STREQ(supervise::decode_spec(bytes.data(), bytes.size(), pointers.data(), pointers.size(),
                                      spec.get()),
               nullptr);
  EXPECT_EQ(spec->argv_count, 3u);
  EXPECT_STREQ(spec->argv[2], "echo out; echo err >&2; exit 3");
  EXPECT_EQ(spec->env_count, 2u);
  EXPECT_STREQ(spec->cwd, "/home/ana");
  EXPECT_EQ(spec->uid, 1000u);
  EXPECT_EQ(spec->gid, 1001u);
  EXPECT_EQ(spec->groups_count, 2u);
  EXPECT_EQ(spec->umask, 027u);
  EXPECT_TRUE(spec->pty);
  EXPECT_EQ(spec->rows, 40);
  EXPECT_EQ(spec->columns, 132);
  EXPECT_EQ(spec->log_segment_bytes, 1u << 20);
  EXPECT_EQ(spec->log_segments_max, 5u);
  EXPECT_EQ(spec->time_limit_ns, hours(2).ns);
  EXPECT_EQ(spec->paid_until_boot_ns, 1'234'000'000'000);
  EXPECT_EQ(spec->stop_grace_ns, seconds(33).ns);
  EXPECT_EQ(spec->leftover_grace_ns, seconds(4).ns);
  EXPECT_STREQ(spec->cgroup_v2, "/sys/fs/cgroup/billow/7");
  EXPECT_EQ(spec->cgroups_v1_count, 2u);
  EXPECT_STREQ(spec->cgroup_memory, "/sys/fs/cgroup/memory/billow/7");
  EXPECT_STREQ(spec->cgroup_freezer_v1, "/sys/fs/cgroup/freezer/billow/7");
  EXPECT_EQ(spec->hide_count, 2u);
  EXPECT_EQ(spec->binds_count, 2u);
  EXPECT_STREQ(spec->binds[0], "ro\n/mnt/data\n/data");
  EXPECT_TRUE(spec->user_namespace);
  EXPECT_TRUE(spec->no_new_privs);
  ASSERT_EQ(spec->rlimits_count, 1u);
  EXPECT_EQ(spec->rlimits[0].hard, 4096u);
  EXPECT_EQ(spec->nice, 5);
  EXPECT_EQ(spec->oom_score_adj, 500);
  EXPECT_EQ(spec->die_with_pid, 4242);
  EXPECT_EQ(spec->subscription, static_cast<std::uint32_t>(supervise::Subscription::live));
}

TEST(GoldenNode, ATableOfAGatewayReadsBack) {
  const std::string text = text_of("table.json");
  const auto table = wire::from_json_text<gateway::Table>(text);
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(missing_from(whole(*table), *parse_json(text), "table"), "");
}

}  // namespace
}  // namespace billow
