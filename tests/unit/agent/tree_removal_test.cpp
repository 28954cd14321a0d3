// Directories of ended tasks, removed in the background.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "agent/isolate/tree_removal.h"
#include "rig.h"

namespace billow::agent {
namespace {

// Removes nothing until it is released, and then only notes what it was to remove.
class Slow {
 public:
  TreeRemoval::Remove remove() {
    return [this](const std::string& path) -> Status {
      std::unique_lock lock(mutex_);
      removed_.insert(path);
      threads_.insert(std::this_thread::get_id());
      changed_.wait(lock, [this] { return released_; });
      return remove_tree(path);
    };
  }
  void release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  std::size_t count() {
    std::lock_guard lock(mutex_);
    return removed_.size();
  }
  bool called_by(std::thread::id thread) {
    std::lock_guard lock(mutex_);
    return threads_.contains(thread);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false;
  std::set<std::string> removed_;
  std::set<std::thread::id> threads_;
};

class Removal : public ::testing::Test {
 protected:
  void SetUp() override { root_ = make_temp_dir(); }
  void TearDown() override { (void)remove_tree(root_); }
  std::string make(const std::string& name) {
    const std::string path = root_ + "/" + name;
    EXPECT_TRUE(make_directories(path + "/below"));
    EXPECT_TRUE(write_file_atomic(path + "/below/file", "x"));
    return path;
  }
  std::set<std::string> names() const {
    std::set<std::string> out;
    for (const auto& item : std::filesystem::directory_iterator(root_))
      out.insert(item.path().filename().native());
    return out;
  }
  net::Loop loop_;
  std::string root_;
};

TEST_F(Removal, TakesTheNameAtOnceAndTheFilesLaterOnAnotherThread) {
  Slow slow;
  TreeRemoval removal(loop_, slow.remove());
  int ticks = 0;
  const net::Timer timer = loop_.every(milliseconds(1), [&] { ++ticks; });
  for (int i = 0; i < 5; ++i) {  // more than it has threads
    const std::string path = make("7");
    ASSERT_TRUE(removal.remove(path));
    EXPECT_FALSE(file_exists(path)) << "a start that is repeated makes it again";
  }
  EXPECT_TRUE(removal.remove(root_ + "/none")) << "nothing is there";
  EXPECT_TRUE(loop_.run_until([&] { return ticks > 3 && slow.count() > 0; }, seconds(60)));
  EXPECT_EQ(names().size(), 5u) << "the loop goes on while nothing is removed";
  slow.release();
  EXPECT_TRUE(loop_.run_until([&] { return names().empty(); }, seconds(60)));
  EXPECT_FALSE(slow.called_by(std::this_thread::get_id()));
}

TEST_F(Removal, FindsWhatAKilledAgentHadRenamed) {
  {
    Slow slow;
    TreeRemoval killed(loop_, slow.remove());
    for (const char* name : {"1", "2", "3", "4"})
      ASSERT_TRUE(killed.remove(make(name)));
    make("live");
    EXPECT_TRUE(loop_.run_until([&] { return slow.count() == 2; }, seconds(60)));
    slow.release();  // what is being removed goes; the rest stays
  }
  TreeRemoval next(loop_);
  next.remove_left(root_);
  EXPECT_TRUE(loop_.run_until([&] { return names().size() == 1; }, seconds(60)));
  EXPECT_TRUE(file_exists(root_ + "/live/below/file"));
}

TEST_F(Removal, IsCompleteWhenTheAgentEnds) {
  TreeRemoval removal(loop_);
  for (int i = 0; i < 20; ++i)
    ASSERT_TRUE(removal.remove(make(std::to_string(i))));
  removal.finish();
  EXPECT_TRUE(names().empty());
  ASSERT_TRUE(removal.remove(make("late")));
  EXPECT_TRUE(names().empty());
}

TEST_F(Removal, TakesALinkAndNotWhatItLeadsTo) {
  const std::string kept = make("kept"), link = root_ + "/link";
  ASSERT_EQ(::symlink(kept.c_str(), link.c_str()), 0);
  TreeRemoval removal(loop_);
  ASSERT_TRUE(removal.remove(link));
  removal.finish();
  EXPECT_EQ(names(), std::set<std::string>{"kept"});
  EXPECT_TRUE(file_exists(kept + "/below/file"));
}

}  // namespace
}  // namespace billow::agent
