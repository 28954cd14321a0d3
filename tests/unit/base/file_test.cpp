// Files: limits, atomic replacement, and locks that end with their holder.
#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>

#include "base/files/remove_tree.h"
#include "base/lock_file.h"

namespace billow {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/billow-file-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override { EXPECT_TRUE(remove_tree(dir_)); }
  std::string at(const std::string& name) const { return dir_ + "/" + name; }
  std::string dir_;
};

TEST_F(Files, AreReadUpToTheirLimit) {
  ASSERT_TRUE(write_file_atomic(at("a"), std::string(1'000, 'x')));
  EXPECT_EQ(read_file(at("a"), 1'000).value().size(), 1'000u);
  const auto large = read_file(at("a"), 999);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::too_large);
  EXPECT_EQ(read_file(at("absent")).error().code, Code::not_found);
  EXPECT_FALSE(read_file(dir_)) << "a directory has no content";
}

TEST_F(Files, AreReplacedWholly) {
  ASSERT_TRUE(write_file_atomic(at("a"), "long content of the first version", 0644));
  ASSERT_TRUE(write_file_atomic(at("a"), "second", 0600, true));
  EXPECT_EQ(read_file(at("a")).value(), "second");
  struct stat info {};
  ASSERT_EQ(::stat(at("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "the new file has its own mode";
}

TEST_F(Files, AFailedReplacementLeavesTheOldFileAndNoOther) {
  ASSERT_TRUE(make_directories(at("taken/below")));
  const Status written = write_file_atomic(at("taken"), "x");
  ASSERT_FALSE(written) << "a directory is in the way";
  EXPECT_NE(written.error().message.find(at("taken")), std::string::npos);
  EXPECT_TRUE(file_exists(at("taken/below")));
  EXPECT_FALSE(file_exists(at("taken") + "." + std::to_string(::getpid()) + ".tmp"));
}

TEST_F(Files, DoNotFollowALinkInTheirTemporaryPlace) {
  const std::string temporary = at("a") + "." + std::to_string(::getpid()) + ".tmp";
  ASSERT_TRUE(write_file_atomic(at("victim"), "untouched"));
  ASSERT_EQ(::symlink(at("victim").c_str(), temporary.c_str()), 0);
  EXPECT_FALSE(write_file_atomic(at("a"), "x"));
  EXPECT_EQ(read_file(at("victim")).value(), "untouched");
}

TEST_F(Files, DirectoriesAreMadeAndRemovedWithAllBelow) {
  EXPECT_TRUE(make_directories(at("x/y/z")));
  EXPECT_TRUE(make_directories(at("x/y/z"))) << "again";
  ASSERT_TRUE(write_file_atomic(at("x/y/file"), ""));
  EXPECT_FALSE(make_directories(at("x/y/file/below")));
  EXPECT_TRUE(remove_tree(at("x")));
  EXPECT_FALSE(file_exists(at("x")));
  EXPECT_TRUE(remove_tree(at("x"))) << "nothing to remove is no error";
}

// A job can make such a tree, which stayed on the node for ever, with all that is in it.
TEST_F(Files, ATreeIsRemovedHoweverDeepItIs) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{128, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  ASSERT_TRUE(make_directories(at("x")));
  Fd deepest(::open(at("x").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(::mkdirat(deepest.get(), "d", 0700), 0);
    deepest = Fd(::openat(deepest.get(), "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(deepest);
  }
  ASSERT_EQ(::symlinkat(dir_.c_str(), deepest.get(), "link"), 0);
  const Status removed = remove_tree(at("x"));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_FALSE(file_exists(at("x")));
  EXPECT_TRUE(file_exists(dir_)) << "links are not followed";
}

// Renaming a directory takes the right to write it, not to remove what it holds: in a shared
// directory that a group may write, a user can move the work of another one into a job's files.
TEST_F(Files, ATreeOfAUserIsRemovedWithoutWhatBelongsToOthers) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root, to make directories of other users";
  constexpr uid_t user = 4001, other = 4002;
  const std::string top = at("7"), deep = "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/u/v/w/x/y/z";
  const auto make = [](const std::string& path, uid_t owner) {
    ASSERT_TRUE(make_directories(path));
    ASSERT_TRUE(write_file_atomic(path + "/file", "x"));
    ASSERT_EQ(::chown(path.c_str(), owner, owner), 0);
  };
  make(top + "/tmp", user);
  make(top + "/tmp/own", user);
  make(top + "/tmp/own/theirs", other);
  make(top + "/tmp/roots", 0);
  std::string below = top + "/tmp";
  for (int i = 0; i < 3; ++i)
    below += deep;
  make(below, user);
  for (std::string path = below; path != top + "/tmp"; path = path.substr(0, path.rfind('/')))
    ASSERT_EQ(::chown(path.c_str(), user, user), 0);
  make(below + "/deep", other);
  const Status removed = remove_tree_of_user(top);
  ASSERT_FALSE(removed);
  EXPECT_NE(removed.error().message.find("another user"), std::string::npos);
  EXPECT_TRUE(file_exists(top + "/tmp/own/theirs/file"));
  EXPECT_TRUE(file_exists(top + "/tmp/roots/file"));
  EXPECT_FALSE(file_exists(top + "/tmp/own/file"));
  EXPECT_FALSE(file_exists(top + "/tmp/file"));
  // What was too deep was moved up, and not to where directories of all users are entered.
  std::size_t kept = 0;
  std::string moved;
  for (const auto& item : std::filesystem::recursive_directory_iterator(top))
    if (item.path().filename() == "file")
      ++kept;
    else if (item.path().filename() == "deep")
      moved = item.path();
  EXPECT_EQ(kept, 3u);
  EXPECT_TRUE(file_exists(moved + "/file")) << moved;
  EXPECT_FALSE(remove_tree_of_user(top)) << "again";
  EXPECT_TRUE(file_exists(top + "/tmp/own/theirs/file"));
  EXPECT_FALSE(remove_tree_of_user(top + "/tmp/own", other)) << "not theirs";
  EXPECT_TRUE(file_exists(top + "/tmp/own/theirs/file"));
  EXPECT_TRUE(remove_tree_of_user(top + "/tmp/roots")) << "root's alone";
  EXPECT_TRUE(remove_tree(top));
  EXPECT_TRUE(remove_tree_of_user(top)) << "nothing is there";
}

TEST_F(Files, ADescriptorHasOneOwner) {
  Fd first(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const int number = first.get();
  Fd second(std::move(first));
  EXPECT_FALSE(first);
  EXPECT_EQ(second.get(), number);
  Fd& same = second;
  second = std::move(same);
  EXPECT_EQ(second.get(), number) << "assigned to itself";
  second.reset();
  EXPECT_EQ(::fcntl(number, F_GETFD), -1) << "closed";
}

TEST_F(Files, ALockIsHeldAsLongAsItsHolderRuns) {
  EXPECT_FALSE(lock_is_held(at("lock"))) << "there is no file";
  ASSERT_TRUE(write_file_atomic(at("lock"), ""));
  EXPECT_FALSE(lock_is_held(at("lock")));
  int ready[2], end[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(end), 0);
  const pid_t holder = ::fork();
  ASSERT_GE(holder, 0);
  if (holder == 0) {
    const int fd = ::open(at("lock").c_str(), O_RDWR);
    if (::flock(fd, LOCK_EX) != 0 || ::write(ready[1], "x", 1) != 1)
      ::_exit(1);
    char c = 0;
    ::_exit(::read(end[0], &c, 1) == 1 ? 0 : 1);
  }
  char c = 0;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  EXPECT_TRUE(lock_is_held(at("lock")));
  EXPECT_TRUE(lock_is_held(at("lock"))) << "looking does not take it";
  ASSERT_EQ(::write(end[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(::waitpid(holder, &status, 0), holder);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(lock_is_held(at("lock")));
  for (const int fd : {ready[0], ready[1], end[0], end[1]})
    ::close(fd);
}

}  // namespace
}  // namespace billow
