// Rooms without a machine: names, descriptions and figures.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/crypto.h"
#include "base/file.h"
#include "container/bundle.h"
#include "container/cdi.h"
#include "container/environment.h"
#include "container/image_store.h"
#include "container/plan.h"
#include "container/podman.h"
#include "container/pull_progress.h"
#include "core/model/image_name.h"
#include "files/image.h"
#include "files/scan.h"
#include "files/tree.h"

namespace billow::container {
namespace {

bool holds(const Json& list, std::string_view text) {
  return std::any_of(list.items().begin(), list.items().end(),
                     [&](const Json& item) { return item.str_or("") == text; });
}
const Json* mount_at(const Json& bundle, std::string_view target) {
  for (const Json& m : bundle["mounts"].items())
    if (m["destination"].str_or("") == target)
      return &m;
  return nullptr;
}

TEST(ImageName, IsTakenApart) {
  const auto full =
      parse_image_name("host.example:5000/team/sub/image:1.2-x@sha256:" + std::string(64, 'a'));
  ASSERT_TRUE(full);
  EXPECT_EQ(full->registry, "host.example:5000");
  EXPECT_EQ(full->repository, "team/sub/image");
  EXPECT_EQ(full->tag, "1.2-x");
  EXPECT_EQ(parse_image_name("ubuntu")->qualified(), "docker.io/library/ubuntu:latest");
  EXPECT_EQ(parse_image_name("pytorch/pytorch:2.4")->qualified(), "docker.io/pytorch/pytorch:2.4");
  EXPECT_EQ(parse_image_name("localhost/mine")->qualified(), "localhost/mine:latest");
  EXPECT_EQ(parse_image_name("a/b:t")->pinned("sha256:" + std::string(64, '0')),
            "a/b@sha256:" + std::string(64, '0'));
  EXPECT_TRUE(parse_image_name("127.0.0.1:5000/x")->on_loopback());
  EXPECT_FALSE(parse_image_name("127x.example/x")->on_loopback());
}

TEST(ImageName, RefusesWhatCouldBeReadAsSomethingElse) {
  for (const std::string& bad : std::vector<std::string>{"",
                                                         "-v",
                                                         "--privileged",
                                                         "a b",
                                                         "a\tb",
                                                         "a\nb",
                                                         std::string("a\0b", 3),
                                                         "docker://a",
                                                         "oci:/x",
                                                         "dir:/etc",
                                                         "UPPER",
                                                         "a//b",
                                                         "/a",
                                                         "a/",
                                                         "../a",
                                                         "a:",
                                                         "a:-t",
                                                         "a@sha256:1",
                                                         "a;b",
                                                         "$(a)",
                                                         "`a`",
                                                         "a|b",
                                                         "ä",
                                                         std::string(600, 'a'),
                                                         std::string(510, 'a'),
                                                         "host:0/x",
                                                         "host:99999/x",
                                                         "-h.example/x",
                                                         "a:" + std::string(129, 't')})
    EXPECT_FALSE(parse_image_name(bad)) << bad;
}

TEST(Bundle, StartsTheJobsCommandBehindTheImagesEntrypoint) {
  Plan plan;
  plan.config = {.env = {"PATH=/opt/bin", "A=image"},
                 .entrypoint = {"/entry"},
                 .command = {"serve"},
                 .directory = "/srv",
                 .user = "app"};
  const auto bundle =
      make_bundle(plan, {.root = "/r",
                         .command = {"python", "x.py"},
                         .env = {"A=job"},
                         .passwd = "root:x:0:0::/root:/bin/sh\napp:x:5:5::/home/app:/bin/sh\n"});
  ASSERT_TRUE(bundle);
  const Json& process = (*bundle)["process"];
  // Behind the container's first process, as the image's user.
  EXPECT_EQ(process["args"].dump(), R"(["/run/billow-as-user","init",)"
                                    R"("/run/billow-as-user","5","5","/entry","python","x.py"])");
  EXPECT_EQ(process["cwd"].str_or(""), "/srv");
  EXPECT_TRUE(holds(process["env"], "PATH=/opt/bin"));
  EXPECT_TRUE(holds(process["env"], "A=job"));
  EXPECT_TRUE(holds(process["env"], "HOME=/home/app"));
  EXPECT_TRUE(process["noNewPrivileges"].bool_or(false));
  EXPECT_FALSE(make_bundle(
      plan, {.root = "/r", .command = {}, .env = {}, .passwd = ""}));  // whom it does not know
  plan.refused_calls = 6;
  const auto confined = make_bundle(
      plan,
      {.root = "/r", .command = {"x"}, .env = {}, .passwd = "app:x:5:5::/home/app:/bin/sh\n"});
  EXPECT_EQ((*confined)["process"]["args"].dump(),
            R"(["/run/billow-as-user","init",)"
            R"("/run/billow-as-user","5","5",)"
            R"("/run/billow-as-user","confine","6","/entry","x"])");
  plan.refused_calls = 0;
  plan.config.user = "";
  const auto own = make_bundle(
      plan, {.root = "/r", .command = {}, .env = {}, .passwd = "", .own_processes = false});
  EXPECT_EQ((*own)["process"]["args"].dump(), R"(["/entry","serve"])");
  EXPECT_FALSE(make_bundle(Plan{}, {.root = "/r", .command = {}, .env = {}, .passwd = ""}));
}

TEST(Bundle, HasProcessesAndMemoryOfItsOwnAndMakesNoDevice) {
  Plan plan;
  plan.devices = {"/dev/nvidia0"};
  plan.mounts = {{.source = "/data", .target = "/data", .read_only = true}};
  const auto bundle = make_bundle(
      plan, {.root = "/r", .command = {"true"}, .env = {}, .passwd = "", .hostname = "node1"});
  ASSERT_TRUE(bundle);
  EXPECT_EQ(bundle->at("linux", "namespaces").dump(),
            R"([{"type":"mount"},{"type":"uts"},{"type":"pid"},{"type":"ipc"}])");
  EXPECT_EQ((*mount_at(*bundle, "/proc"))["type"].str_or(""), "proc");
  EXPECT_EQ((*mount_at(*bundle, "/dev/shm"))["type"].str_or(""), "tmpfs");
  ASSERT_NE(mount_at(*bundle, "/dev/nvidia0"), nullptr);
  ASSERT_NE(mount_at(*bundle, "/data"), nullptr);
  EXPECT_TRUE(holds((*mount_at(*bundle, "/data"))["options"], "ro"));
  for (const char* option : {"nosuid", "nodev"})
    EXPECT_TRUE(holds((*mount_at(*bundle, "/data"))["options"], option));
  EXPECT_FALSE(holds((*mount_at(*bundle, "/data"))["options"], "noexec"));
  EXPECT_FALSE(holds((*mount_at(*bundle, "/dev/nvidia0"))["options"], "nodev"));
  EXPECT_TRUE(bundle->at("linux", "resources").is_null());  // limits are the job's control group's
  const auto locked = make_bundle(
      plan,
      {.root = "/r", .command = {"true"}, .env = {}, .passwd = "", .without_programs = {"/data"}});
  EXPECT_TRUE(holds((*mount_at(*locked, "/data"))["options"], "noexec"));
  // Ranks work together: the node's processes, and the memory they are given.
  plan.mounts.push_back({.source = "/dev/shm/x/shm-7", .target = "/dev/shm"});
  const auto shared = make_bundle(
      plan, {.root = "/r", .command = {"true"}, .env = {}, .passwd = "", .own_processes = false});
  ASSERT_TRUE(shared);
  EXPECT_EQ(shared->at("linux", "namespaces").dump(), R"([{"type":"mount"}])");
  EXPECT_EQ((*mount_at(*shared, "/proc"))["source"].str_or(""), "/proc");
  EXPECT_EQ((*mount_at(*shared, "/dev/shm"))["source"].str_or(""), "/dev/shm/x/shm-7");
}

TEST(ImageUser, IsWhomTheImageNames) {
  const std::string passwd =
                        "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/"
                        "sh\nbroken:x:a:b::/:/bin/sh\n",
                    groups = "root:x:0:\nstaff:x:50:app\n";
  const auto of = [&](std::string_view user) {
    const auto found = user_of(user, passwd, groups);
    return found ? fmt::format("{}:{}", found->uid, found->gid)
                 : std::string(found.error().message.find("does not have") != std::string::npos
                                   ? "unknown"
                                   : "?");
  };
  for (const auto& [user, expected] :
       std::vector<std::pair<const char*, const char*>>{{"", "0:0"},
                                                        {"root", "0:0"},
                                                        {"0", "0:0"},
                                                        {"app", "1000:1001"},
                                                        {"1000", "1000:1001"},
                                                        {"app:staff", "1000:50"},
                                                        {"app:7", "1000:7"},
                                                        {"4321", "4321:0"},
                                                        {"4321:staff", "4321:50"},
                                                        {"stranger", "unknown"},
                                                        {"app:strangers", "unknown"},
                                                        {"broken", "unknown"},
                                                        {"-1", "unknown"},
                                                        {"4294967295", "unknown"},
                                                        {"1 2", "unknown"}})
    EXPECT_EQ(of(user), expected) << user;
}

TEST(Bundle, ShowsOnlyDirectoriesThatHideNothing) {
  for (const char* good :
       {"/home/ana/project", "/data", "/tmp/x", "/var/tmp/billow-1/7", "/work", "/usrlocal"})
    EXPECT_TRUE(may_show(good)) << good;
  for (const char* bad : {"/", "", "relative", "/usr", "/usr/local/src", "/etc", "/home", "/root",
                          "/proc/1", "/lib64"})
    EXPECT_FALSE(may_show(bad)) << bad;
}

TEST(Cdi, GivesAJobItsOwnCardsAndTheDriver) {
  GpuInfo one, two;
  one.index = 0;
  one.uuid = "GPU-a";
  one.device_files = {"/dev/null"};
  two.index = 1;
  two.uuid = "GPU-b";
  two.device_files = {"/dev/zero"};
  const Json cdi = make_cdi({one, two}, {.libraries = {"/usr/lib/x/libcuda.so.1"},
                                         .programs = {"/usr/bin/nvidia-smi"},
                                         .sockets = {},
                                         .devices = {"/dev/full"}});
  EXPECT_EQ(cdi["kind"].str_or(""), "billow.io/gpu");
  Plan plan;
  ASSERT_TRUE(add_devices(cdi, {"1"}, plan));
  EXPECT_EQ(plan.devices, (std::vector<std::string>{"/dev/zero", "/dev/full"}));
  EXPECT_EQ(plan.library_dirs, std::vector<std::string>{driver_dir});
  ASSERT_EQ(plan.mounts.size(), 2u);
  EXPECT_EQ(plan.mounts[0].target, std::string(driver_dir) + "/libcuda.so.1");
  EXPECT_TRUE(plan.mounts[0].read_only);
  EXPECT_TRUE(std::find(plan.env.begin(), plan.env.end(), "BILLOW_GPU_1=GPU-b") != plan.env.end());
  Plan none;
  ASSERT_TRUE(add_devices(cdi, {}, none));
  EXPECT_TRUE(none.devices.empty() && none.mounts.empty());
  EXPECT_FALSE(add_devices(cdi, {"7"}, none));
  Plan by_uuid;
  EXPECT_TRUE(add_devices(cdi, {"GPU-a"}, by_uuid));
  EXPECT_EQ(by_uuid.devices.front(), "/dev/null");
}

TEST(PullProgress, AddsUpLayers) {
  PullProgress p;
  EXPECT_FALSE(p.take("Trying to pull x...\r\n"));
  EXPECT_TRUE(p.take("Copying blob 1a2b3c4d5e6f [=>-------] 10.0MiB / 100.0MiB\r\n"));
  EXPECT_TRUE(
      p.take("\x1b[1A\x1b[JCopying blob 9f8e7d6c5b4a [=>-------] 512.0KiB / 1.0GiB\r\nCopying blob "
             "1a2b3c4d5e6f [==>------] 5"));
  EXPECT_EQ(p.total_bytes(), (100ll << 20) + (1ll << 30));
  EXPECT_TRUE(p.take("0.0MiB / 100.0MiB\r\n"));
  EXPECT_EQ(p.done_bytes(), (50ll << 20) + (512ll << 10));
  EXPECT_TRUE(p.take("Copying blob 1a2b3c4d5e6f done\r\n"));
  EXPECT_EQ(p.done_bytes(), (100ll << 20) + (512ll << 10));
  EXPECT_EQ(p.text("x"), "pulling x: 105 of 1,178 MB");
}

// The store is its user's, and whoever looks into it may be root: what lies at the description's
// name may be anything.
class Store : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(store_.data()), nullptr);
    ASSERT_TRUE(make_directories(environment_dir(store_, digest_), 0755));
    path_ = environment_dir(store_, digest_) + "/environment.json";
  }
  void TearDown() override { (void)remove_tree(store_); }
  // What it returns in a process of its own, which ends where it would wait.
  template <class Run>
  static int within_seconds(Run run) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(20);
      ::_exit(run());
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // 0: not found.
  int look() {
    return within_seconds([&] {
      const auto found = find_environment(store_, digest_);
      return !found && found.error().code == Code::not_found ? 0 : 1;
    });
  }
  const std::string facts_ = R"({"place":"/opt/x","bytes":5})";
  std::string store_ = "/tmp/billow-store-XXXXXX", digest_ = std::string(64, 'a'), path_;
};

TEST_F(Store, AnEnvironmentIsAPlainFile) {
  ASSERT_TRUE(write_file_atomic(path_, facts_, 0600));
  const auto found = find_environment(store_, digest_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->place, "/opt/x");
}

TEST_F(Store, ALinkIsNotFollowed) {
  ASSERT_TRUE(write_file_atomic(store_ + "/elsewhere", facts_, 0600));
  ASSERT_EQ(::symlink((store_ + "/elsewhere").c_str(), path_.c_str()), 0);
  EXPECT_EQ(look(), 0);
}

TEST_F(Store, APipeIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(look(), 0);
}

TEST_F(Store, APipeInsteadOfWhatATaskUsesIsNotWaitedFor) {
  ASSERT_TRUE(mark_in_use(store_, "1", digest_));
  ASSERT_TRUE(in_use(store_, digest_));
  const std::string uses = scratch_dir(store_, "1") + "/uses";
  ASSERT_EQ(::unlink(uses.c_str()), 0);
  ASSERT_EQ(::mkfifo(uses.c_str(), 0600), 0);
  EXPECT_EQ(within_seconds([&] { return in_use(store_, digest_) ? 1 : 0; }), 0);
}

// The agent removes as root, from a folder whose owner may exchange everything in it.
TEST_F(Store, TheAgentRemovesNothingOfOthers) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root, to make directories of other users";
  constexpr uid_t user = 4001, other = 4002;
  const std::string shared = store_ + "/shared", scratch = store_ + "/scratch";
  const auto make = [](const std::string& path, uid_t owner) {
    ASSERT_TRUE(make_directories(path));
    ASSERT_TRUE(write_file_atomic(path + "/file", "x"));
    ASSERT_EQ(::chown(path.c_str(), owner, owner), 0);
  };
  const auto all = [](const std::string&) {
    return true;
  };
  make(scratch, user);
  ASSERT_EQ(::chown(store_.c_str(), user, user), 0);
  make(scratch + "/own", user);
  make(scratch + "/own/below", user);
  make(scratch + "/moved", other);
  make(scratch + "/holds", user);
  make(scratch + "/holds/moved", other);
  make(shared, other);
  make(shared + "/theirs", other);
  ASSERT_EQ(::symlink(shared.c_str(), (scratch + "/link").c_str()), 0);
  remove_from_store(store_, "scratch", all);
  EXPECT_FALSE(file_exists(scratch + "/own"));
  EXPECT_FALSE(file_exists(scratch + "/holds/file"));
  EXPECT_TRUE(file_exists(scratch + "/moved/file"));
  EXPECT_TRUE(file_exists(scratch + "/holds/moved/file"));
  ASSERT_TRUE(remove_tree(scratch));
  ASSERT_EQ(::symlink(shared.c_str(), scratch.c_str()), 0);
  remove_from_store(store_, "scratch", all);
  EXPECT_TRUE(file_exists(shared + "/theirs/file")) << "through a link of the user's";
  ASSERT_EQ(::unlink(scratch.c_str()), 0);
  ASSERT_EQ(::rename(shared.c_str(), scratch.c_str()), 0);
  remove_from_store(store_, "scratch", all);
  EXPECT_TRUE(file_exists(scratch + "/theirs/file")) << "moved there by the user";
}

// Saved environments as they come from a head: how much of them is kept, and what is never taken
// away.
class Unpacked : public ::testing::Test {
 protected:
  struct Saved {
    std::string digest, stream;
  };
  void SetUp() override { ASSERT_NE(::mkdtemp(top_.data()), nullptr); }
  void TearDown() override { (void)remove_tree(top_); }
  Saved save(const std::string& name) {
    const std::string from = top_ + "/from-" + name, into = top_ + "/image-" + name;
    EXPECT_TRUE(make_directories(from, 0755));
    EXPECT_TRUE(write_file_atomic(from + "/file", name + std::string(100'000, 'x'), 0644));
    const auto written = files::write_image({.directory = from, .place = "/opt/x"}, into);
    EXPECT_TRUE(written) << written.error().message;
    const auto scan = files::scan({.root = into, .ignore_files = false});
    EXPECT_TRUE(scan) << scan.error().message;
    const std::string list = files::encode(scan->tree);
    Saved out{sha256_hex(list), {}};
    for (int i = 0; i < 8; ++i)
      out.stream += static_cast<char>(list.size() >> (8 * i));
    out.stream += list;
    for (const files::Entry& entry : scan->tree.entries)
      if (entry.kind == files::Kind::file)
        out.stream += read_file(into + "/" + entry.path).value_or("");
    return out;
  }
  Result<std::optional<Environment>> unpack(const Saved& saved,
                                            const std::string& key,
                                            std::uint64_t bytes_max) {
    const std::string path = top_ + "/stream";
    EXPECT_TRUE(write_file_atomic(path, saved.stream, 0600));
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return unpack_environment({store_(), saved.digest, key, bytes_max}, fd.get());
  }
  bool here(const Saved& saved) { return find_environment(store_(), saved.digest).has_value(); }
  std::string store_() const { return top_ + "/store"; }
  std::string top_ = "/tmp/billow-unpacked-XXXXXX";
};

TEST_F(Unpacked, OneIsHeldForItsTaskFromTheMomentItIsHere) {
  const Saved a = save("a"), b = save("b"), c = save("c");
  ASSERT_TRUE(unpack(a, "task-1", 150'000).value().has_value());
  ASSERT_TRUE(unpack(b, "task-2", 150'000).value().has_value());
  EXPECT_TRUE(here(a) && here(b))
      << "a task that has not even begun lost its environment to the next one";
  ASSERT_TRUE(remove_tree(scratch_dir(store_(), "task-1")));  // as when its task has ended
  ASSERT_TRUE(remove_tree(scratch_dir(store_(), "task-2")));
  ASSERT_TRUE(hold_environment({store_(), b.digest, "task-3", 0}).value().has_value());
  ASSERT_TRUE(unpack(c, "task-4", 150'000).value().has_value());
  EXPECT_FALSE(here(a));
  EXPECT_TRUE(here(b)) << "one that was here already is held too";
  EXPECT_EQ(hold_environment({store_(), a.digest, "task-5", 0}).error().code, Code::not_found);
}

TEST_F(Unpacked, NobodyWaitsForWhatSomebodyElseHolds) {
  const Saved a = save("a"), b = save("b");
  ASSERT_TRUE(unpack(a, "task-1", 0).value().has_value());
  const Fd unpacking(::open(fmt::format("{}/env/.unpacking-{}", store_(), b.digest).c_str(),
                            O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(unpacking.get(), LOCK_EX), 0);
  ASSERT_TRUE(make_directories(environment_dir(store_(), b.digest) + "/tree", 0700));  // half of it
  EXPECT_FALSE(unpack(b, "task-2", 0).value().has_value());  // busy, said at once
  EXPECT_TRUE(hold_environment({store_(), a.digest, "task-3", 0})
                  .value()
                  .has_value());  // another one is not held up
  ASSERT_TRUE(unpack(save("c"), "task-4", 1).value().has_value());
  EXPECT_TRUE(file_exists(environment_dir(store_(), b.digest)))
      << "what is being unpacked was taken for one that broke off";
  ASSERT_EQ(::flock(unpacking.get(), LOCK_UN), 0);
  EXPECT_TRUE(unpack(b, "task-2", 0).value().has_value());
}

}  // namespace
}  // namespace billow::container
