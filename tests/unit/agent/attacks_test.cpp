// What a job's user may put in the agent's way, where the agent has more rights than that user:
// links, pipes and directories at names that can be guessed. Each of these once let a user read or
// change what only the agent may. They need root: without it the agent has no more rights than the
// user.
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "agent/isolate/look_as_user.h"
#include "agent/isolate/own_place.h"
#include "agent/isolate/sandbox.h"
#include "agent/isolate/secret_files.h"
#include "agent/reach/ssh_server.h"
#include "agent/task/checkpointer.h"
#include "base/crypto.h"
#include "net/ssh_key.h"
#include "rig.h"

namespace billow::agent {
namespace {

constexpr std::uint32_t nobody = 65534;

class Attack : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0)
      GTEST_SKIP() << "needs root: an agent that is its jobs' user has nothing to lose to it";
    owner_ = fmt::format("attack{}", ::getpid());
    root_ = make_temp_dir();
    ASSERT_EQ(::chmod(root_.c_str(), 0711), 0);
    victim_ = root_ + "/victim";
    ASSERT_EQ(::mkdir(victim_.c_str(), 0700), 0);
    ASSERT_TRUE(write_file_atomic(victim_ + "/file", "only root's\n", 0600));
  }
  void TearDown() override {
    for (const char* where : {"/tmp", "/dev/shm", "/run"})
      for (const std::string& path : listed(where, "billow-"))
        if (path.find(owner_) != std::string::npos)
          (void)remove_tree(path);
    if (!root_.empty())
      (void)remove_tree(root_);
  }

  static std::vector<std::string> listed(const std::string& directory, const std::string& prefix) {
    std::vector<std::string> out;
    std::error_code ec;
    for (std::filesystem::directory_iterator at(directory, ec), end; !ec && at != end;
         at.increment(ec))
      if (at->path().filename().native().starts_with(prefix))
        out.push_back(at->path().native());
    std::sort(out.begin(), out.end());
    return out;
  }
  static struct stat look(const std::string& path) {
    struct stat st {};
    EXPECT_EQ(::lstat(path.c_str(), &st), 0) << path;
    return st;
  }
  void expect_victim_untouched() {
    EXPECT_EQ(look(victim_).st_uid, 0u);
    EXPECT_EQ(look(victim_).st_mode & 0777, 0700u);
    EXPECT_EQ(look(victim_ + "/file").st_uid, 0u);
    const auto text = read_file(victim_ + "/file", 100);
    ASSERT_TRUE(text);
    EXPECT_EQ(*text, "only root's\n");
  }
  static UserRecord user() {
    UserRecord out;
    out.name = "nobody";
    out.home = "/";
    out.identity = {nobody, nobody, {}};
    return out;
  }

  net::Loop loop_;
  TreeRemoval removal_{loop_};
  std::string owner_, root_, victim_;
};

// ---- secure shells
class Shell : public Attack {
 protected:
  void SetUp() override {
    Attack::SetUp();
    if (::testing::Test::IsSkipped())
      return;
    ::setenv("BILLOW_SSHD", "/bin/true",
             1);  // what is written before it starts is what counts here
    key_ = make_ssh_key("attacker").public_line;
  }
  void TearDown() override {
    ::unsetenv("BILLOW_SSHD");
    Attack::TearDown();
  }
  SshPlace place() const {
    SshPlace out;
    out.task = TaskId(7);
    out.user = user();
    out.place.identity = out.user.identity;
    return out;
  }
  std::vector<std::string> directories() const { return listed(root_, "ssh-"); }
  std::string key_;
};

TEST_F(Shell, IsNotWrittenThroughWhatItsUserPutIntoItsDirectory) {
  SshServers doors(removal_, root_);
  const auto first = doors.open(place(), key_);
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_EQ(directories().size(), 1u);
  // It is the user's now, who knows every name that was ever used in it.
  const std::string mine = directories()[0];
  EXPECT_EQ(look(mine).st_uid, nobody);
  EXPECT_EQ(look(mine).st_mode & 0777, 0700u);
  const std::string by_key = mine + "/key-" + sha256_hex(key_).substr(0, 16);
  for (const std::string& name : {mine + "/host_key", mine + "/host_key.pub", mine + "/authorized",
                                  mine + "/config", by_key, by_key + ".conf"}) {
    ::unlink(name.c_str());
    ASSERT_EQ(::symlink((victim_ + "/file").c_str(), name.c_str()), 0);
    const std::string temporary = fmt::format("{}.{}.tmp", name, ::getpid());
    ASSERT_EQ(::symlink((victim_ + "/file").c_str(), temporary.c_str()), 0);
  }
  const auto second = doors.open(place(), key_);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(second->host_key, first->host_key);  // and not what the link leads to
  expect_victim_untouched();
  EXPECT_EQ(directories().size(), 2u);  // one for each connection
}

TEST_F(Shell, DoesNotTrustADirectoryThatWasThereBefore) {
  // At the name an earlier agent used for all connections of a task: owned by the user and closed
  // to others, as it was itself.
  const std::string guessed = root_ + "/ssh-7";
  SshServers doors(removal_, root_);
  ASSERT_EQ(::mkdir(guessed.c_str(), 0700), 0);
  ASSERT_EQ(::lchown(guessed.c_str(), nobody, nobody), 0);
  ASSERT_EQ(::symlink((victim_ + "/file").c_str(), (guessed + "/host_key.pub").c_str()), 0);
  const auto door = doors.open(place(), key_);
  ASSERT_TRUE(door) << door.error().message;
  EXPECT_TRUE(door->host_key.starts_with("ssh-ed25519 ")) << door->host_key;
  expect_victim_untouched();
  for (const std::string& dir : directories()) {
    if (dir == guessed)
      continue;
    for (const char* name : {"/host_key", "/authorized", "/config"}) {
      EXPECT_EQ(look(dir + name).st_mode & 0777, 0600u);
      EXPECT_EQ(look(dir + name).st_uid, nobody);
    }
  }
}

TEST_F(Shell, TakesKeysAndNothingThatComesBeforeOne) {
  SshServers doors(removal_, root_);
  for (const std::string& bad : std::vector<std::string>{
           "", "command=\"reboot\" " + key_, key_ + "\n" + key_, "@cert-authority * " + key_,
           "ssh-ed25519", "ssh-ed25519 !!!", "ssh-ed25519 " + std::string(10000, 'A')})
    EXPECT_FALSE(doors.open(place(), bad)) << bad.substr(0, 60);
  EXPECT_TRUE(directories().empty());
}

// ---- checkpoints
class Checkpoint : public Attack {
 protected:
  std::string directory() const { return root_ + "/checkpoint-9"; }
  Status prepare() {
    TaskPlan plan;
    plan.checkpoint_every = seconds(60);
    plan.checkpoint_dir = root_;
    plan.other_user = true;
    plan.uid = plan.gid = nobody;
    Environment env;
    Checkpointer checkpointer(loop_, removal_, {});
    return checkpointer.prepare(plan, TaskId(9), JobId(1), root_, env);
  }
};

TEST_F(Checkpoint, DoesNotGiveAwayWhatALinkLeadsTo) {
  ASSERT_EQ(::symlink(victim_.c_str(), directory().c_str()), 0);
  const Status made = prepare();
  ASSERT_TRUE(made) << made.error().message;
  expect_victim_untouched();
  EXPECT_TRUE(S_ISDIR(look(directory()).st_mode));
  EXPECT_EQ(look(directory()).st_uid, nobody);
}

TEST_F(Checkpoint, DoesNotUseADirectoryThatSomebodyElseMade) {
  ASSERT_EQ(::mkdir(directory().c_str(), 0777), 0);
  ASSERT_EQ(::chmod(directory().c_str(), 0777), 0);
  ASSERT_TRUE(write_file_atomic(directory() + "/planted", "x", 0666));
  ASSERT_TRUE(prepare());
  EXPECT_EQ(look(directory()).st_mode & 0777, 0700u);
  EXPECT_FALSE(file_exists(directory() + "/planted"));
}

// The user may have moved it there from a directory that a group may write. It holds what only its
// owner may remove.
TEST_F(Checkpoint, IsRemovedWithoutADirectoryOfSomebodyElses) {
  constexpr uid_t other = 4001;
  ASSERT_TRUE(prepare());
  const std::string moved = directory() + "/moved", closed = moved + "/closed";
  for (const std::string& dir : {moved, closed}) {
    ASSERT_EQ(::mkdir(dir.c_str(), 0755), 0);
    ASSERT_TRUE(write_file_atomic(dir + "/work", "of weeks\n"));
    ASSERT_EQ(::chown(dir.c_str(), other, other), 0);
  }
  ASSERT_TRUE(write_file_atomic(directory() + "/own", "x"));
  Checkpointer checkpointer(loop_, removal_, {});
  checkpointer.ended(root_, TaskId(9));
  removal_.finish();
  EXPECT_FALSE(file_exists(directory()));
  std::vector<std::string> left;
  for (const auto& item : std::filesystem::recursive_directory_iterator(root_))
    if (item.is_regular_file() && !item.path().native().starts_with(victim_))
      left.push_back(item.path().filename().native());
  EXPECT_EQ(left, (std::vector<std::string>{"work", "work"}));
}

// ---- secrets as files
class Secret : public Attack {
 protected:
  Status write(const SecretFiles& files) {
    const auto written = files.write(
        TaskId(3), {{.name = "KEY", .variable = "", .file = "/run/secrets/KEY"}},
        {{.variable = "", .file = "/run/secrets/KEY", .value = base64("value")}}, user());
    return written ? Status{} : pass(written.error());
  }
  std::string directory(const SecretFiles& files) {
    const std::string file = files.path(TaskId(3), "KEY");
    return file.substr(0, file.rfind('/'));
  }
};

TEST_F(Secret, IsWrittenAlthoughALinkToNowhereIsInItsWay) {
  const SecretFiles files(removal_, root_, owner_);
  ASSERT_EQ(::symlink((root_ + "/nowhere").c_str(), directory(files).c_str()), 0);
  const auto written = write(files);
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_TRUE(S_ISDIR(look(directory(files)).st_mode));
  EXPECT_EQ(look(directory(files)).st_mode & 0777, 0700u);
  EXPECT_EQ(look(files.path(TaskId(3), "KEY")).st_mode & 0777, 0400u);
  EXPECT_FALSE(file_exists(root_ + "/nowhere"));
  files.remove(TaskId(3));
  EXPECT_FALSE(file_exists(directory(files)));
}

TEST_F(Secret, RemovesALinkAndNotWhatItLeadsTo) {
  const SecretFiles files(removal_, root_, owner_);
  ASSERT_EQ(::symlink(victim_.c_str(), directory(files).c_str()), 0);
  ASSERT_TRUE(write(files));
  expect_victim_untouched();
  EXPECT_FALSE(file_exists(victim_ + "/KEY"));
}

// ---- directories of the agent's own
struct OwnDirectory : Attack {
  void SetUp() override {
    Attack::SetUp();
    if (::testing::Test::IsSkipped())
      return;
    data = root_ + "/data";
    under = root_ + "/open";
    for (const std::string& dir : {data, under})
      ASSERT_EQ(::mkdir(dir.c_str(), 0700), 0);
    ASSERT_EQ(::chmod(under.c_str(), 01777), 0);
  }
  std::string open(const std::string& earlier = {}) {
    const auto place = OwnPlace::open({data, under, earlier});
    EXPECT_TRUE(place) << place.error().message;
    return place ? place->path() : "";
  }
  std::string data, under;
};

TEST_F(OwnDirectory, IsFoundAgainAndNeverTakenFromOthers) {
  const std::string first = open();
  EXPECT_EQ(look(first).st_mode & 0777, 0711u);
  EXPECT_EQ(open(), first);  // the next life of the agent
  // It went (a reboot clears such places), and somebody who had seen the name is first there.
  for (const bool linked : {false, true}) {
    const std::string before = open();
    ASSERT_TRUE(remove_tree(before));
    if (linked)
      ASSERT_EQ(::symlink(victim_.c_str(), before.c_str()), 0);
    else
      ASSERT_EQ(::mkdir(before.c_str(), 0777) | ::lchown(before.c_str(), nobody, nobody), 0);
    const std::string after = open();
    EXPECT_NE(after, before);
    EXPECT_EQ(look(after).st_uid, ::geteuid());
    expect_victim_untouched();
  }
  // One that others can write into is nobody's to trust.
  const std::string opened = open();
  ASSERT_EQ(::chmod(opened.c_str(), 0777), 0);
  EXPECT_NE(open(), opened);
}

TEST_F(OwnDirectory, APredictableNameIsKeptOnlyWhereItIsOurs) {
  const std::string earlier = under + "/billow-old";
  ASSERT_EQ(::mkdir(earlier.c_str(), 0711), 0);
  EXPECT_EQ(open(earlier), earlier);
  ASSERT_EQ(::lchown(earlier.c_str(), nobody, nobody), 0);
  EXPECT_NE(open(earlier), earlier);
}

TEST_F(OwnDirectory, ADirectoryInWhichOthersCanReplaceFilesIsRefused) {
  ASSERT_EQ(::chmod(under.c_str(), 0777), 0);
  EXPECT_FALSE(OwnPlace::open({data, under, {}}));
  ASSERT_EQ(::chmod(under.c_str(), 01777), 0);
  ASSERT_EQ(::lchown(under.c_str(), nobody, nobody), 0);
  EXPECT_FALSE(OwnPlace::open({data, under, {}}));
}

TEST_F(OwnDirectory, NothingBelowItIsMadeThroughALink) {
  const auto place = OwnPlace::at(open());
  ASSERT_TRUE(place);
  ASSERT_TRUE(place->directory({.relative = "caches/one", .mode = 01777}));
  EXPECT_EQ(look(place->below("caches")).st_mode & 07777, 0711u);
  EXPECT_EQ(look(place->below("caches/one")).st_mode & 07777, 01777u);
  ASSERT_EQ(::symlink(victim_.c_str(), place->below("link").c_str()), 0);
  EXPECT_FALSE(place->directory({.relative = "link", .mode = 01777}));
  EXPECT_FALSE(place->directory({.relative = "link/below", .mode = 01777}));
  // What others can write is no place for anything of ours.
  EXPECT_FALSE(place->directory({.relative = "caches/one/below"}));
  EXPECT_FALSE(place->directory({.relative = "caches/one", .existing = OwnPlace::If::exists_fail}));
  expect_victim_untouched();
}

TEST_F(Attack, WhatTheJobsUserCannotSeeIsNotSeenForIt) {
  const std::optional<Identity> user(Identity{nobody, nobody, {}});
  UserLooks looks;
  const std::string open = root_ + "/for-all";
  ASSERT_EQ(::mkdir(open.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(open.c_str(), 0755), 0);
  EXPECT_EQ(looks.look(user, open), Sight::empty);
  EXPECT_EQ(looks.look(user, open + "/none"), Sight::nothing);
  ASSERT_TRUE(write_file_atomic(open + "/file", "x", 0644));
  EXPECT_EQ(looks.look(user, open), Sight::used);
  EXPECT_EQ(looks.look(user, open + "/file"), Sight::used);
  // Where only root looks, what is there and what is not look the same; also by a link of the
  // user's own.
  ASSERT_EQ(::symlink(victim_.c_str(), (open + "/link").c_str()), 0);
  for (const std::string& path :
       {victim_, victim_ + "/file", victim_ + "/none", open + "/link", open + "/link/none"})
    EXPECT_EQ(looks.look(user, path), Sight::closed) << path;
  EXPECT_EQ(looks.look(std::nullopt, victim_ + "/none"), Sight::nothing);
  EXPECT_EQ(looks.look(std::nullopt, victim_), Sight::used);
}

// Any user may mount a file system that a program of theirs serves, or does not serve.
TEST_F(Attack, AFileSystemThatDoesNotAnswerHoldsTheAgentUpOnlyOnce) {
  const std::optional<Identity> user(Identity{nobody, nobody, {}});
  const std::string at = root_ + "/hangs", beside = root_ + "/for-all";
  ASSERT_EQ(::mkdir(at.c_str(), 0755), 0);
  ASSERT_EQ(::mkdir(beside.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(beside.c_str(), 0755), 0);
  const Fd device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  const std::string options =
      fmt::format("fd={},rootmode=40000,user_id={},group_id={}", device.get(), nobody, nobody);
  if (!device || ::mount("hangs", at.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
    GTEST_SKIP() << "no file system can be served here: " << ::strerrordesc_np(errno);
  UserLooks looks;
  const SteadyTime begun = system_clock().steady();
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(looks.look(user, at + "/x"), Sight::silent);
  EXPECT_EQ(looks.look(std::nullopt, beside), Sight::empty) << "others are not held up";
  EXPECT_LT(system_clock().steady() - begun, seconds(10));
  EXPECT_EQ(::umount2(at.c_str(), MNT_DETACH), 0);
}

// ---- volumes
class Place : public Attack {
 protected:
  void SetUp() override {
    Attack::SetUp();
    if (::testing::Test::IsSkipped())
      return;
    sandbox_.emplace(Sandbox::detect());
    if (sandbox_->kind() == SandboxKind::variables_only)
      GTEST_SKIP() << sandbox_->report();
    volume_ = root_ + "/volume";
    ASSERT_EQ(::mkdir(volume_.c_str(), 0777), 0);
    ASSERT_EQ(::chmod(volume_.c_str(), 0777), 0);
    ASSERT_TRUE(write_file_atomic(volume_ + "/data", "of the volume\n", 0644));
  }
  // A job of nobody's with the volume at this place.
  Heard run(const std::string& place, const std::string& script, bool read_only = false) {
    TaskSpec spec = shell(script);
    spec.identity = Identity{nobody, nobody, {}};
    spec.no_new_privs = true;
    const Status bound = sandbox_->bind_to(spec, {{volume_, place, read_only}});
    if (!bound) {
      refused_ = bound.error().message;
      return {};
    }
    const Heard heard = rig_.run(TaskId(++next_), spec);
    if (heard.exit)
      refused_ = heard.exit->detail;
    return heard;
  }
  Rig rig_;
  std::optional<Sandbox> sandbox_;
  std::string volume_, refused_;
  std::uint64_t next_ = 0;
};

TEST_F(Place, LeavesADirectoryAsClosedAsItWas) {
  ASSERT_TRUE(write_file_atomic(victim_ + "/open", "for whoever gets here\n", 0644));
  const Heard heard = run(victim_ + "/place", fmt::format("cat {}/open; ls {}", victim_, victim_));
  ASSERT_TRUE(heard.exit);
  EXPECT_EQ(heard.out, "");
  EXPECT_NE(heard.err.find("Permission denied"), std::string::npos) << heard.err;
}

TEST_F(Place, IsNotWhereTheSystemsFilesAre) {
  for (const char* path : {"/proc", "//proc", "/proc/x", "///proc//x", "/proc/../proc",
                           "/mnt/../proc/x", "/./proc", "/sys/fs", "/dev/shm/x", "//dev"}) {
    refused_.clear();
    const Heard heard = run(path, "echo ran");
    EXPECT_EQ(heard.out, "") << path;
    EXPECT_NE(refused_.find("cannot be mounted in"), std::string::npos) << path << ": " << refused_;
  }
}

TEST_F(Place, IsNotWhereALinkLeadsIntoTheSystemsFiles) {
  const std::string link = root_ + "/link";
  for (const auto& [to, place] :
       std::vector<std::pair<std::string, std::string>>{{"/proc", link},
                                                        {"/proc", link + "/new"},
                                                        {"/dev", link + "/new/deeper"},
                                                        {"/sys/fs", link},
                                                        {"//proc/self/..", link}}) {
    ::unlink(link.c_str());
    ASSERT_EQ(::symlink(to.c_str(), link.c_str()), 0);
    refused_.clear();
    const Heard heard = run(place, "echo ran; test -e /proc/self/status && echo real");
    ASSERT_TRUE(heard.exit) << to;
    EXPECT_EQ(heard.out, "") << to << " " << place;
    EXPECT_NE(refused_.find("leads into /proc, /sys or /dev"), std::string::npos)
        << to << " " << place << ": " << refused_;
  }
}

TEST_F(Place, MayBeALinkToAnOrdinaryDirectory) {
  const std::string link = root_ + "/link", real = root_ + "/real";
  ASSERT_EQ(::mkdir(real.c_str(), 0755), 0);
  ASSERT_EQ(::symlink(real.c_str(), link.c_str()), 0);
  EXPECT_EQ(run(link, fmt::format("cat {}/data {}/data", link, real)).out,
            "of the volume\nof the volume\n")
      << refused_;
  EXPECT_EQ(
      run(link + "/below", fmt::format("cat {}/below/data; echo x > {}/below/no", real, real), true)
          .out,
      "of the volume\n")
      << refused_;
  EXPECT_FALSE(file_exists(volume_ + "/no"));
  EXPECT_FALSE(file_exists(real + "/below"));  // nothing of it is seen on the node
}

TEST_F(Place, IsMadeForRealWhereTheJobsUserMay) {
  const std::string own = root_ + "/own";
  ASSERT_EQ(::mkdir(own.c_str(), 0755), 0);
  ASSERT_EQ(::chown(own.c_str(), nobody, nobody), 0);
  const Heard heard =
      run(own + "/new/place", fmt::format("cat {0}/new/place/data; echo kept > {0}/result", own));
  EXPECT_EQ(heard.out, "of the volume\n") << refused_ << heard.err;
  EXPECT_TRUE(file_exists(own + "/result")) << "what a job writes beside its volume stays";
  EXPECT_EQ(look(own + "/new/place").st_uid, nobody);
}

TEST_F(Place, IsNotMadeInADirectoryOfSomebodyElses) {
  const std::string other = root_ + "/other", own = root_ + "/own";
  for (const std::string& dir : {other, own})
    ASSERT_EQ(::mkdir(dir.c_str(), 0755), 0);
  ASSERT_EQ(::chown(other.c_str(), 1, 1), 0);
  ASSERT_EQ(::chown(own.c_str(), nobody, nobody), 0);
  ASSERT_EQ(::symlink(victim_.c_str(), (own + "/link").c_str()), 0);
  ASSERT_EQ(::mkdir((other + "/closed").c_str(), 0755),
            0);  // the system's, in a directory whose owner could exchange it
  for (const std::string& place : {other + "/new", other + "/closed/new"}) {
    refused_.clear();
    EXPECT_EQ(run(place, "echo ran").out, "") << place;
    EXPECT_NE(refused_.find("somebody else's"), std::string::npos) << place << ": " << refused_;
  }
  (void)run(own + "/link/new", "true");
  EXPECT_FALSE(file_exists(victim_ + "/new")) << "made where only root may";
}

// The agent has checked where the path leads. Whoever owns a directory above the volume may
// exchange it before it is mounted, for example while an image is fetched.
TEST_F(Place, ShowsNothingThatWasPutInThePlaceOfTheVolumeSinceItsCheck) {
  const std::string theirs = root_ + "/theirs", other = root_ + "/other";
  for (const std::string& dir : {theirs, theirs + "/a", theirs + "/a/b", other, other + "/b"}) {
    ASSERT_EQ(::mkdir(dir.c_str(), 0755), 0);
    ASSERT_EQ(::chown(dir.c_str(), nobody, nobody), 0);
  }
  volume_ = theirs + "/a/b";
  ASSERT_TRUE(write_file_atomic(volume_ + "/data", "of the volume\n", 0644));
  ASSERT_TRUE(write_file_atomic(other + "/data", "elsewhere\n", 0644));
  ASSERT_TRUE(write_file_atomic(other + "/b/data", "elsewhere\n", 0644));
  ASSERT_EQ(run("/mnt/" + owner_, fmt::format("cat /mnt/{}/data", owner_)).out, "of the volume\n");
  for (const auto& [part, target] : std::vector<std::pair<std::string, std::string>>{
           {theirs + "/a/b", other}, {theirs + "/a", other}, {theirs + "/a/b", "/proc"}}) {
    TaskSpec spec = shell(fmt::format("ls /mnt/{0}; cat /mnt/{0}/data", owner_));
    spec.identity = Identity{nobody, nobody, {}};
    spec.no_new_privs = true;
    ASSERT_TRUE(sandbox_->bind_to(spec, {{volume_, "/mnt/" + owner_, false}}));
    const std::string aside = root_ + "/aside";
    ASSERT_EQ(::rename(part.c_str(), aside.c_str()), 0);
    ASSERT_EQ(::symlink(target.c_str(), part.c_str()), 0);
    const Heard heard = rig_.run(TaskId(++next_), spec);
    ASSERT_TRUE(heard.exit);
    EXPECT_EQ(heard.out, "") << part << " for " << target;
    EXPECT_NE(std::string(heard.exit->detail).find("replaced by a link"), std::string::npos)
        << heard.exit->detail;
    ASSERT_EQ(::unlink(part.c_str()), 0);
    ASSERT_EQ(::rename(aside.c_str(), part.c_str()), 0);
  }
}

TEST_F(Place, MayBeANewDirectoryBelowTheRoot) {
  const std::string top = "/billow-" + owner_;
  const Heard heard = run(
      top,
      fmt::format("cat {0}/data; echo more > {0}/made; test -d /usr && test -e /proc/self/status "
                  "&& test -c /dev/null && echo all there; pwd; stat -c %a:%u /",
                  top));
  ASSERT_TRUE(heard.exit);
  const struct stat slash = look("/");
  EXPECT_EQ(heard.out, fmt::format("of the volume\nall there\n/\n{:o}:{}\n", slash.st_mode & 07777,
                                   slash.st_uid))
      << refused_ << heard.err;
  EXPECT_TRUE(file_exists(volume_ + "/made"));
  EXPECT_FALSE(file_exists(top));
  const Heard deeper =
      run(top + "/a/b", fmt::format("cat {0}/a/b/data; echo no > {0}/a/b/x", top), true);
  EXPECT_EQ(deeper.out, "of the volume\n") << refused_;
  EXPECT_FALSE(file_exists(volume_ + "/x"));
}

}  // namespace
}  // namespace billow::agent
