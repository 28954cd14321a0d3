// Job traces: a time that cannot be read is an error that names the job or the cell, never a job
// that is left out or moved to another day.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "simulate/head_replay.h"
#include "simulate/simulate.h"

namespace billow {
namespace {

class TraceFile {
 public:
  explicit TraceFile(std::string_view text)
      : path_((std::filesystem::temp_directory_path() /
               ("billow-trace-" + std::to_string(::getpid())))
                  .string()) {
    EXPECT_TRUE(write_file_atomic(path_, text, 0600));
  }
  ~TraceFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<std::vector<control::ReplayJob>> history(std::string_view jobs) {
  const TraceFile file(jobs);
  return control::read_replay(file.path(), "history", 8);
}

TEST(History, RunTimesAreThoseOfTheJobs) {
  const auto jobs = history(
      R"([{"id": 1, "submitted_at": "2026-11-15T23:59:50Z", "started_at": "2026-11-16T00:00:00Z",
           "ended_at": "2026-11-16T00:01:30Z", "gpus": 2},
          {"id": 2, "submitted_at": "2026-11-16T00:00:00Z", "started_at": null,
           "ended_at": null}])");
  ASSERT_TRUE(jobs) << jobs.error().message;
  ASSERT_EQ(jobs->size(), 1u) << "a job that never ran is left out";
  EXPECT_EQ(jobs->front().run_s, 90);
  EXPECT_EQ(jobs->front().resources.gpus, 2);
}

TEST(History, ATimeThatCannotBeReadIsAnError) {
  const auto jobs = history(
      R"([{"id": 7, "submitted_at": "2026-11-15T23:59:50Z", "started_at": "2026-02-30T00:00:00Z",
           "ended_at": "2026-11-16T00:01:30Z"}])");
  ASSERT_FALSE(jobs);
  EXPECT_NE(jobs.error().message.find("job 7: \"2026-02-30T00:00:00Z\" is not a time"),
            std::string::npos)
      << jobs.error().message;
}

TEST(Philly, ATimeThatCannotBeReadNamesItsLineAndColumn) {
  const TraceFile good("timestamp,duration,num_gpus\n2017-10-09 07:01:55,60,4\n");
  const auto jobs = sched::read_philly(good.path());
  ASSERT_TRUE(jobs) << jobs.error().message;
  EXPECT_EQ(jobs->front().service_s, 60);
  const TraceFile bad(
      "timestamp,duration,num_gpus\n2017-10-09 07:01:55,60,4\n2017-02-30 07:01:55,60,4\n");
  const auto none = sched::read_philly(bad.path());
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find(":3: column timestamp: \"2017-02-30 07:01:55\""),
            std::string::npos)
      << none.error().message;
}

}  // namespace
}  // namespace billow
