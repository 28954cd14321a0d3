// The limit of what projects' jobs keep on a node: the longest unused goes first, and nothing
// outside is touched.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "agent/content/project_cache.h"
#include "agent/content/project_leftovers.h"
#include "base/file.h"
#include "container/environment.h"
#include "core/model/surroundings.h"
#include "files/pack.h"

namespace billow::agent {
namespace {

struct ProjectCaches : ::testing::Test {
  void SetUp() override {
    char name[] = "/tmp/billow-caches-XXXXXX";
    root = ::mkdtemp(name);
    work = root + "/work";
    ASSERT_TRUE(make_directories(root + "/data", 0700));
    ASSERT_TRUE(make_directories(work, 0711));
    const auto place = OwnPlace::at(work);
    ASSERT_TRUE(place) << place.error().message;
    one = project_cache(*place, root + "/data", "one").value_or("");
    two = project_cache(*place, root + "/data", "two").value_or("");
    ASSERT_FALSE(one.empty());
    ASSERT_NE(one, two);
  }
  void TearDown() override { std::filesystem::remove_all(root); }

  // Of 64 KiB, used that long ago.
  void put(const std::string& path, int hours_ago) {
    ASSERT_TRUE(make_directories(path.substr(0, path.rfind('/')), 0755));
    ASSERT_TRUE(write_file_atomic(path, std::string(64 << 10, 'x'), 0644));
    const timespec at{1'700'000'000 - hours_ago * 3600, 0};
    const timespec both[2] = {at, at};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), both, 0), 0);
  }
  std::string root, work, one, two;
};

TEST_F(ProjectCaches, TheLongestUnusedGoFirstWhosesoeverTheyAre) {
  put(one + "/hub/old", 9);
  put(one + "/hub/new", 1);
  put(two + "/old", 8);
  put(two + "/newer", 2);
  trim_project_caches(work, 10 << 20);
  EXPECT_TRUE(file_exists(one + "/hub/old")) << "below the limit nothing goes";
  trim_project_caches(work, (2 * 64 + 32) << 10);
  EXPECT_FALSE(file_exists(one + "/hub/old"));
  EXPECT_FALSE(file_exists(two + "/old"));
  EXPECT_TRUE(file_exists(one + "/hub/new"));
  EXPECT_TRUE(file_exists(two + "/newer"));
  trim_project_caches(work, 0);
  EXPECT_FALSE(file_exists(one + "/hub/new"));
  EXPECT_TRUE(file_exists(one)) << "the directory itself is the project's";
}

TEST_F(ProjectCaches, WhatAJobLinkedToIsNeitherCountedNorRemoved) {
  put(root + "/elsewhere/precious", 100);
  put(one + "/own", 1);
  ASSERT_EQ(::symlink((root + "/elsewhere").c_str(), (one + "/link").c_str()), 0);
  ASSERT_EQ(::symlink((root + "/elsewhere/precious").c_str(), (one + "/file").c_str()), 0);
  trim_project_caches(work, 0);
  EXPECT_TRUE(file_exists(root + "/elsewhere/precious"));
  EXPECT_FALSE(file_exists(one + "/own"));
}

// A job can make directories far deeper than any path reaches: the walk through them takes neither
// memory for each level's path nor a descriptor for each level, and ends.
TEST_F(ProjectCaches, DirectoriesThatAreTooDeepAreRemoved) {
  put(one + "/kept", 1);
  const std::string name(200, 'd');
  int at = ::open(one.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int level = 0; level < 1200; ++level) {
    ASSERT_EQ(::mkdirat(at, name.c_str(), 0755), 0);
    const int below = ::openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ::close(at);
    at = below;
    ASSERT_GE(at, 0);
  }
  const int file = ::openat(at, "hidden", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  ::close(at);
  // Removed, however many descriptors hold it: its last name has gone.
  rlimit files{}, few{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  few = {std::min<rlim_t>(files.rlim_cur, 700), files.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  trim_project_caches(work, 10 << 20);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  struct stat info {};
  ASSERT_EQ(::fstat(file, &info), 0);
  EXPECT_EQ(info.st_nlink, 0u);
  ::close(file);
  EXPECT_TRUE(file_exists(one + "/kept"));
}

TEST_F(ProjectCaches, NothingThereIsNoTrouble) {
  trim_project_caches(root + "/nowhere", 0);
}

// Two projects used one tree and one environment, and each has others of its own: what is alone the
// first one's goes with it.
TEST_F(ProjectCaches, WhatAProjectLeftGoesWithItButForWhatOthersBroughtToo) {
  auto store = files::Store::open({.directory = root + "/files", .bytes_max = 1 << 30});
  auto objects = ObjectCache::open({work + "/objects", 1 << 30});
  ASSERT_TRUE(store && objects);
  const std::string data = root + "/data";
  const auto tree = [&](const std::string& content) {
    std::string pack;
    files::add_piece(pack, sha256(content), content);
    EXPECT_TRUE((*store)->add("", pack));
    files::Entry entry;
    entry.path = "a";
    entry.kind = files::Kind::file;
    entry.size = content.size();
    entry.pieces = {sha256(content)};
    const std::string list = files::encode(files::Tree{{entry}});
    EXPECT_TRUE((*store)->add_tree("", sha256(list), list));
    return files::digest_hex(sha256(list));
  };
  const std::string own = tree("own"), shared = tree("shared"), env_own = std::string(64, 'a'),
                    env_shared = std::string(64, 'b');
  const auto env_dir = [&](const std::string& digest) {
    return container::environment_dir(work + "/boxes/1000", digest);
  };
  for (const std::string& digest : {env_own, env_shared})
    put(env_dir(digest) + "/tree/bin/python", 1);
  put(work + "/objects/objects/model", 1);
  objects = ObjectCache::open({work + "/objects", 1 << 30});
  const auto start = [&](const char* project, const std::string& files,
                         const std::string& environment) {
    wire::agent_v1::Start s;
    s.env = {{"BILLOW_PROJECT", project}, {surroundings::files, files}};
    s.surroundings.environment_digest = environment;
    s.surroundings.inputs = {{"https://example.com/model", "model"}};
    ASSERT_TRUE(note_leftovers(data, s));
  };
  start("one", own, env_own);
  start("one", shared, env_shared);
  start("two", shared, env_shared);
  put(one + "/hub/weights", 1);
  put(two + "/hub/weights", 1);
  EXPECT_EQ(leftover_projects(data).size(), 2u);

  const CachePlaces places{data, work, **store, **objects};
  ASSERT_TRUE(remove_leftovers(places, {"three"}));
  EXPECT_TRUE(file_exists(env_dir(env_own)));
  put(work + "/boxes/1000/scratch/task/uses", 1);
  ASSERT_TRUE(write_file_atomic(work + "/boxes/1000/scratch/task/uses", env_own + "\n"));
  EXPECT_FALSE(remove_leftovers(places, {"one"})) << "a room is made of it";
  EXPECT_EQ(leftover_projects(data).size(), 2u) << "and is tried again";
  std::filesystem::remove_all(work + "/boxes/1000/scratch");
  const Status done = remove_leftovers(places, {"one"});
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_FALSE((*store)->has(sha256("own")));
  EXPECT_TRUE((*store)->has(sha256("shared")));
  EXPECT_FALSE(file_exists(env_dir(env_own)));
  EXPECT_TRUE(file_exists(env_dir(env_shared)));
  EXPECT_FALSE(file_exists(work + "/objects/objects/model"));
  EXPECT_FALSE(file_exists(one));
  EXPECT_TRUE(file_exists(two + "/hub/weights"));
  EXPECT_EQ(leftover_projects(data), std::vector<std::string>{"two"});
  ASSERT_TRUE(remove_leftovers(places, {"two"}));
  EXPECT_FALSE((*store)->has(sha256("shared")));
  EXPECT_FALSE(file_exists(env_dir(env_shared)));
}

// What is in use is what users wrote into their own stores.
TEST_F(ProjectCaches, WhatSomebodyUsesKeepsNothingElseOnTheNode) {
  auto store = files::Store::open({.directory = root + "/files", .bytes_max = 1 << 30});
  auto objects = ObjectCache::open({work + "/objects", 1 << 30});
  ASSERT_TRUE(store && objects);
  const std::string data = root + "/data", used = std::string(64, 'a'),
                    path = container::environment_dir(work + "/boxes/1000", used);
  put(path + "/tree/bin/python", 1);
  put(work + "/boxes/1000/scratch/task/uses", 1);
  ASSERT_TRUE(write_file_atomic(work + "/boxes/1000/scratch/task/uses", used + "\n"));
  for (const char* project : {"one", "two"}) {
    wire::agent_v1::Start start;
    start.env = {{"BILLOW_PROJECT", project}};
    start.surroundings.environment_digest = project == std::string("one") ? used : "";
    ASSERT_TRUE(note_leftovers(data, start));
  }
  put(one + "/hub/weights", 1);
  put(two + "/hub/weights", 1);
  const CachePlaces places{data, work, **store, **objects};
  EXPECT_FALSE(remove_leftovers(places, {"one", "two"}));
  EXPECT_TRUE(file_exists(path));
  EXPECT_FALSE(file_exists(one));
  EXPECT_FALSE(file_exists(two));
  EXPECT_EQ(leftover_projects(data), std::vector<std::string>{"one"}) << "is tried again";
}

}  // namespace
}  // namespace billow::agent
