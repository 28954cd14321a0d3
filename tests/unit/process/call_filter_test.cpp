// The filters on system calls: what they answer, for both kinds of machine, and in a real process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "process/become_linux.h"
#include "process/call_filter_linux.h"
#include "process/spawn.h"

namespace billow::process {
namespace {

constexpr std::uint32_t all_groups = no_privileged_files | no_kernel_doors | no_namespaces;
constexpr std::uint32_t every_group = all_groups | no_rare_calls;

struct Call {
  int number = 0;
  std::uint64_t arguments[6] = {};
};

// Runs a filter as the kernel would.
std::uint32_t answer(const CallFilter& filter, std::uint32_t arch, const Call& call) {
  seccomp_data data{};
  data.nr = call.number;
  data.arch = arch;
  std::memcpy(data.args, call.arguments, sizeof data.args);
  std::uint32_t accumulator = 0;
  for (std::size_t at = 0; at < filter.length;) {
    const sock_filter& one = filter.code[at++];
    const auto jump = [&](bool yes) {
      at += yes ? one.jt : one.jf;
    };
    switch (one.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        std::memcpy(&accumulator, reinterpret_cast<const char*>(&data) + one.k, 4);
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        jump(accumulator == one.k);
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        jump(accumulator >= one.k);
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        jump(accumulator > one.k);
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        jump((accumulator & one.k) != 0);
        break;
      case BPF_RET | BPF_K:
        return one.k;
      default:
        ADD_FAILURE() << "unknown instruction " << one.code;
        return 0;
    }
  }
  ADD_FAILURE() << "the filter has no end";
  return 0;
}

struct Kind {
  Machine machine;
  std::uint32_t arch, other_arch;
  int number(const CallRule& rule) const {
    return machine == Machine::x86_64 ? rule.x86_64 : rule.aarch64;
  }
};
constexpr Kind kinds[] = {{Machine::x86_64, AUDIT_ARCH_X86_64, AUDIT_ARCH_I386},
                          {Machine::aarch64, AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM}};

// Arguments for which a rule's tests are all true.
Call that_breaks(const CallRule& rule, int number) {
  Call call{number, {}};
  for (const ArgumentTest& test : rule.tests)
    if (test.kind == ArgumentTest::any_bit)
      call.arguments[test.argument] |= test.value & (~test.value + 1);  // one of the bits
    else if (test.kind == ArgumentTest::equals)
      call.arguments[test.argument] = test.value;
    else if (test.kind == ArgumentTest::above)
      call.arguments[test.argument] = (test.value | 1) + 1;
    else if (test.kind == ArgumentTest::differs && call.arguments[test.argument] == test.value)
      call.arguments[test.argument] = test.value + 1;
  return call;
}

TEST(CallFilter, EveryRuleRefusesItsCallOnBothMachines) {
  for (const Kind& kind : kinds) {
    EXPECT_LE(make_call_filter(every_group, kind.machine).length, filter_instructions_max);
    for (const CallRule& rule : call_rules) {
      const CallFilter filter = make_call_filter(rule.group, kind.machine);
      const int number = kind.number(rule);
      if (number < 0)
        continue;
      EXPECT_EQ(answer(filter, kind.arch, that_breaks(rule, number)),
                SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(rule.error))
          << number;
      if (rule.tests[0].kind != ArgumentTest::none) {
        EXPECT_EQ(answer(filter, kind.arch, {number, {}}), SECCOMP_RET_ALLOW) << number;
      }
    }
  }
}

TEST(CallFilter, AllowsWhatNoRuleNames) {
  for (const Kind& kind : kinds) {
    const CallFilter filter = make_call_filter(all_groups, kind.machine);
    std::set<int> named;
    for (const CallRule& rule : call_rules)
      named.insert(kind.number(rule));
    for (int number = 0; number < 500; ++number)
      if (!named.contains(number)) {
        EXPECT_EQ(answer(filter, kind.arch, {number, {1, 2, 3, 4, 5, 6}}), SECCOMP_RET_ALLOW)
            << number;
      }
  }
}

TEST(CallFilter, TheStrictProfileHasLocalInternetAndNetlinkSocketsAlone) {
  const std::set<int> kept = {0, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
  for (const Kind& kind : kinds) {
    const CallFilter filter = make_call_filter(every_group, kind.machine);
    for (int family = 0; family < 64; ++family)
      EXPECT_EQ(answer(filter, kind.arch,
                       {kind.machine == Machine::x86_64 ? 41 : 198,
                        {static_cast<std::uint64_t>(family)}}) == SECCOMP_RET_ALLOW,
                kept.contains(family))
          << family;
  }
}

TEST(CallFilter, StrictJobsHaveNetlinkForTheirOwnNetworkAlone) {
  for (const Kind& kind : kinds) {
    const CallFilter filter = make_call_filter(strict_rules, kind.machine);
    const int number = kind.machine == Machine::x86_64 ? 41 : 198;
    for (std::uint64_t protocol = 0; protocol < 32; ++protocol) {
      EXPECT_EQ(answer(filter, kind.arch, {number, {AF_NETLINK, SOCK_RAW, protocol}}) ==
                    SECCOMP_RET_ALLOW,
                protocol == 0)
          << protocol;
      EXPECT_EQ(answer(filter, kind.arch, {number, {AF_INET, SOCK_STREAM, protocol}}),
                SECCOMP_RET_ALLOW);
    }
  }
}

TEST(CallFilter, RefusesWhatIsNamedBesides) {
  NamedCalls named;
  for (; named.count < named_calls_max; ++named.count)
    named.numbers[named.count] = 1000 + static_cast<std::uint32_t>(named.count);
  for (const Kind& kind : kinds) {
    const CallFilter filter = with_named(make_call_filter(every_group, kind.machine), named);
    EXPECT_LE(filter.length, filter_instructions_max);
    for (const int number : {1000, 1100, 1255})
      EXPECT_EQ(answer(filter, kind.arch, {number, {}}), SECCOMP_RET_ERRNO | EPERM) << number;
    for (const int number : {0, 999, 1256})
      EXPECT_EQ(answer(filter, kind.arch, {number, {}}), SECCOMP_RET_ALLOW) << number;
  }
}

TEST(CallFilter, KillsProgramsOfOtherMachines) {
  for (const Kind& kind : kinds)
    for (const std::uint32_t groups : {std::uint32_t{no_privileged_files}, all_groups})
      EXPECT_EQ(answer(make_call_filter(groups, kind.machine), kind.other_arch, {1, {}}),
                SECCOMP_RET_KILL_PROCESS);
  constexpr int x32_chmod = 0x40000000 + 90;
  EXPECT_EQ(answer(make_call_filter(no_privileged_files, Machine::x86_64), AUDIT_ARCH_X86_64,
                   {x32_chmod, {0, 04755}}),
            SECCOMP_RET_KILL_PROCESS);
}

TEST(CallFilter, LooksAtTheModeOnlyWhereAFileIsMade) {
  for (const Kind& kind : kinds) {
    const CallFilter filter = make_call_filter(no_privileged_files, kind.machine);
    const int openat = kind.machine == Machine::x86_64 ? 257 : 56;
    const auto open = [&](std::uint64_t flags, std::uint64_t mode) {
      return answer(filter, kind.arch, {openat, {0, 0, flags, mode}});
    };
    constexpr std::uint64_t temporary = 020000000;
    EXPECT_EQ(open(0, 07777), SECCOMP_RET_ALLOW) << "the argument may hold anything";
    EXPECT_EQ(open(0100, 0777), SECCOMP_RET_ALLOW);
    EXPECT_EQ(open(0100, 04755), SECCOMP_RET_ERRNO | EPERM);
    EXPECT_EQ(open(0101, 02755), SECCOMP_RET_ERRNO | EPERM);
    EXPECT_EQ(open(temporary | 2, 04700), SECCOMP_RET_ERRNO | EPERM);
  }
}

TEST(CallFilter, KeepsWhatDebuggersAndThreadsNeed) {
  for (const Kind& kind : kinds) {
    const CallFilter filter = make_call_filter(all_groups, kind.machine);
    const bool x86 = kind.machine == Machine::x86_64;
    const auto allowed = [&](int number, std::uint64_t first, std::uint64_t second = 0) {
      return answer(filter, kind.arch, {number, {first, second}}) == SECCOMP_RET_ALLOW;
    };
    EXPECT_TRUE(allowed(x86 ? 56 : 220, 0x3d0f00)) << "clone() as pthread_create() calls it";
    EXPECT_TRUE(allowed(x86 ? 135 : 92, 0xffffffff)) << "personality(): a question";
    EXPECT_TRUE(allowed(x86 ? 135 : 92, 0x0040000)) << "personality(): gdb's";
    EXPECT_FALSE(allowed(x86 ? 135 : 92, 0x0400000)) << "personality(): READ_IMPLIES_EXEC";
    EXPECT_TRUE(allowed(x86 ? 101 : 117, 0)) << "ptrace()";
    EXPECT_TRUE(allowed(x86 ? 298 : 241, 0, 0)) << "perf_event_open() of itself";
    EXPECT_FALSE(allowed(x86 ? 298 : 241, 0, 0xffffffffffffffff)) << "of everybody";
    EXPECT_TRUE(allowed(x86 ? 310 : 270, 0)) << "process_vm_readv(), for messages between ranks";
  }
}

// The numbers for this machine, as its headers have them.
const std::set<int> numbers_of_headers = {
#ifdef SYS_chmod
    SYS_chmod,
    SYS_creat,
    SYS_open,
    SYS_mknod,
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
#endif
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    448,
    438,
    SYS_kcmp,
    SYS_fanotify_init,
    SYS_name_to_handle_at,
    SYS_vmsplice,
    SYS_fchmod,
    SYS_fchmodat,
    452,
    SYS_openat,
    SYS_openat2,
    SYS_mknodat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    463,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_add_key,
    SYS_request_key,
    SYS_keyctl,
    SYS_bpf,
    SYS_userfaultfd,
    SYS_perf_event_open,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_open_by_handle_at,
    SYS_swapon,
    SYS_swapoff,
    SYS_reboot,
    SYS_acct,
    SYS_quotactl,
    443,
    SYS_syslog,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_lookup_dcookie,
    SYS_vhangup,
    SYS_personality,
    SYS_ioctl,
    SYS_socket,
    SYS_unshare,
    SYS_clone,
    SYS_clone3,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    467};

TEST(CallFilter, TheTableHasTheNumbersOfTheHeaders) {
  std::set<int> mine;
  for (const CallRule& rule : call_rules)
    if (const int number = this_machine == Machine::x86_64 ? rule.x86_64 : rule.aarch64;
        number >= 0)
      mine.insert(number);
  EXPECT_EQ(mine, numbers_of_headers);
}

struct Folder {
  std::string path = "/tmp/billow-filter-XXXXXX";
  Folder() { EXPECT_NE(::mkdtemp(path.data()), nullptr); }
  ~Folder() { std::filesystem::remove_all(path); }
};

// What a process with the filter is answered: errno by name, 0 where it was allowed.
std::map<std::string, int> tried(std::uint32_t groups, const std::string& directory) {
  std::map<std::string, int> out;
  Pipe pipe = *Pipe::create();
  const std::string file = directory + "/file", other = directory + "/other";
  const std::string names[] = {"plain",    "chmod", "setgid", "open",   "mknod",  "openat2",
                               "setxattr", "uring", "keys",   "userns", "thread", "again"};
  Spawn request;
  request.body = [&] {
    if (forbid_new_privileges() || refuse_calls(groups))
      return 1;
    int results[12] = {};
    const auto of = [](long result) {
      return result < 0 ? errno : 0;
    };
    const int fd = ::open(file.c_str(), O_CREAT | O_RDWR, 0755);
    results[0] = of(fd);
    results[1] = of(::chmod(file.c_str(), 04755));
    results[2] = of(::fchmod(fd, 02755));
    results[3] = of(::open(other.c_str(), O_CREAT | O_RDWR, 04755));
    results[4] = of(::mknod((other + "2").c_str(), S_IFREG | 04755, 0));
    open_how how{};
    how.flags = O_RDONLY;
    results[5] = of(::syscall(SYS_openat2, AT_FDCWD, file.c_str(), &how, sizeof how));
    results[6] = of(::setxattr(file.c_str(), "security.capability", "x", 1, 0));
    results[7] = of(::syscall(SYS_io_uring_setup, 0, nullptr));
    results[8] = of(::syscall(SYS_keyctl, 0, -3, 0));
    results[9] = of(::unshare(CLONE_NEWUSER));
    pthread_t thread{};
    results[10] = ::pthread_create(
        &thread, nullptr, [](void*) -> void* { return nullptr; }, nullptr);
    if (results[10] == 0)
      ::pthread_join(thread, nullptr);
    results[11] = of(::chmod(file.c_str(), 0700));
    (void)!::write(pipe.write.get(), results, sizeof results);
    return 0;
  };
  auto child = spawn(request);
  EXPECT_TRUE(child);
  EXPECT_EQ(child->wait().code(), 0);
  int results[12] = {};
  EXPECT_EQ(::read(pipe.read.get(), results, sizeof results), static_cast<ssize_t>(sizeof results));
  for (std::size_t i = 0; i < 12; ++i)
    out[names[i]] = results[i];
  return out;
}

TEST(CallFilter, AProcessLeavesNoPrivilegedFiles) {
  const Folder directory;
  const auto got = tried(no_privileged_files, directory.path);
  EXPECT_EQ(got.at("plain"), 0);
  EXPECT_EQ(got.at("chmod"), EPERM);
  EXPECT_EQ(got.at("setgid"), EPERM);
  EXPECT_EQ(got.at("open"), EPERM);
  EXPECT_EQ(got.at("mknod"), EPERM);
  EXPECT_EQ(got.at("openat2"), ENOSYS);
  EXPECT_EQ(got.at("setxattr"), EOPNOTSUPP);
  EXPECT_EQ(got.at("uring"), ENOSYS);
  EXPECT_EQ(got.at("thread"), 0);
  EXPECT_EQ(got.at("again"), 0) << "other modes can be set";
}

TEST(CallFilter, AProcessReachesNoKernelDoors) {
  const Folder directory;
  const auto got = tried(no_kernel_doors | no_namespaces, directory.path);
  EXPECT_EQ(got.at("chmod"), 0);
  EXPECT_EQ(got.at("uring"), ENOSYS);
  EXPECT_EQ(got.at("keys"), EPERM);
  EXPECT_EQ(got.at("userns"), EPERM);
  EXPECT_EQ(got.at("thread"), 0);
}

// Another process of this user, and what a process with these rules is answered there.
int look_into_another(std::uint32_t rules, NamedCalls refused_before = {}) {
  Spawn waits;
  waits.body = [] {
    ::pause();
    return 0;
  };
  auto other = spawn(waits);
  EXPECT_TRUE(other);
  const std::string path = "/proc/" + std::to_string(other->pid()) + "/mem";
  Spawn looks;
  looks.body = [&] {
    if (forbid_new_privileges() || refuse_calls(0, refused_before) || refuse_calls(rules))
      return 255;
    return ::open(path.c_str(), O_RDONLY) < 0 ? errno : 0;
  };
  auto child = spawn(looks);
  EXPECT_TRUE(child);
  return child->wait().code();
}

TEST(CallFilter, ADomainKeepsAProcessFromOthersOfItsUser) {
  if (landlock_version() < landlock_version_min)
    GTEST_SKIP() << "this kernel has no Landlock";
  EXPECT_EQ(look_into_another(no_kernel_doors), 0);
  EXPECT_EQ(look_into_another(no_kernel_doors | own_domain), EACCES);
}

TEST(CallFilter, WithoutLandlockTheOtherRulesStillApply) {
  NamedCalls without_landlock;
  without_landlock.numbers[without_landlock.count++] = 444;
  EXPECT_EQ(look_into_another(no_kernel_doors | own_domain, without_landlock), 0);
}

}  // namespace
}  // namespace billow::process
