// Filters that refuse system calls (seccomp). A process that has one can never remove it, and
// neither can its descendants. This header needs no C++ library, because billow-supervise uses it
// too.
//
// The rules are a table, and a rule refuses: what no rule names is allowed. That keeps programs
// working that we do not know, and the table short. The numbers of both machines stand in it, so
// that tests check the filters of both. Programs of another machine's kind (32 bit, x32) are
// killed, because their numbers mean other calls.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace billow::process {

enum class Machine { x86_64, aarch64 };
#if defined(__x86_64__)
inline constexpr Machine this_machine = Machine::x86_64;
#else
inline constexpr Machine this_machine = Machine::aarch64;
#endif

// The groups of rules of which a filter is made.
enum CallRules : std::uint32_t {
  // Files that run with the rights of their owner or group, and file capabilities. For containers:
  // a file that one leaves in a directory of the node would give its owner's rights to anyone
  // who executes it there. io_uring opens files without any filter.
  no_privileged_files = 1,
  // Parts of the kernel that jobs do not need and that have been the way to many an escape, and
  // what only an administrator may do anyway.
  no_kernel_doors = 2,
  // New namespaces and mounts. Inside a user namespace a process has rights over parts of the
  // kernel that are otherwise root's.
  no_namespaces = 4,
  // Not a filter but a Landlock domain: processes outside it cannot be traced, and no device file
  // can be made nor a mount changed; since Linux 6.12 abstract sockets and signals of
  // processes outside it are closed, too. Older kernels leave that to the rest of the wall.
  no_outside_peers = 8,
  // Calls that look into or steer other processes, and rare kinds of sockets. Debuggers need them.
  no_rare_calls = 16,
  // Not a filter either: gives up every capability, for good.
  no_capabilities = 32,
  // What the kernel tells of the whole machine. Of netlink, programs need only what they ask about
  // their own network.
  no_machine_events = 64,
  // The Landlock domain of no_outside_peers, but sockets and signals stay open, as programs of one
  // account need them. For plain jobs: what other processes of the same account have in their
  // memory, descriptors, variables and directories is closed to the job.
  own_domain = 128,
};
// Behind the wall of strict isolation.
inline constexpr std::uint32_t strict_rules = no_privileged_files | no_kernel_doors |
                                              no_namespaces | no_outside_peers | no_capabilities |
                                              no_machine_events;

struct ArgumentTest {
  enum Kind : std::uint8_t { none, any_bit, equals, differs, above } kind = none;
  std::uint8_t argument = 0;
  std::uint32_t value = 0;  // compared with the lower half of the argument
};

struct CallRule {
  CallRules group;
  int x86_64, aarch64;         // the call's number; -1: this machine does not have it
  int error;                   // the answer
  ArgumentTest tests[2] = {};  // refused if all of them are true
};

namespace rules {

inline constexpr std::uint32_t set_id_bits = 06000;
inline constexpr std::uint32_t create_bits = 0100 | 020000000;  // O_CREAT, and O_TMPFILE's own bit
inline constexpr std::uint32_t namespace_bits = 0x7e020000;     // CLONE_NEW…
inline constexpr std::uint32_t new_time = 0x80;                 // CLONE_NEWTIME
inline constexpr std::uint32_t everything = 0xffffffff;         // also -1
// Bits of personality() that programs use: gdb's and setarch's.
inline constexpr std::uint32_t usual_personality = 0x0040000 | 0x0020000 | 0x8;

constexpr ArgumentTest has(std::uint8_t argument, std::uint32_t bits) {
  return {ArgumentTest::any_bit, argument, bits};
}
constexpr ArgumentTest is(std::uint8_t argument, std::uint32_t value) {
  return {ArgumentTest::equals, argument, value};
}
constexpr ArgumentTest is_not(std::uint8_t argument, std::uint32_t value) {
  return {ArgumentTest::differs, argument, value};
}
constexpr ArgumentTest more_than(std::uint8_t argument, std::uint32_t value) {
  return {ArgumentTest::above, argument, value};
}

}  // namespace rules

// ENOSYS where a program has another way, as on an older kernel; EOPNOTSUPP as on a file system
// without attributes.
inline constexpr CallRule call_rules[] = {
    {no_privileged_files, 90, -1, EPERM, {rules::has(1, rules::set_id_bits)}},    // chmod
    {no_privileged_files, 91, 52, EPERM, {rules::has(1, rules::set_id_bits)}},    // fchmod
    {no_privileged_files, 268, 53, EPERM, {rules::has(2, rules::set_id_bits)}},   // fchmodat
    {no_privileged_files, 452, 452, EPERM, {rules::has(2, rules::set_id_bits)}},  // fchmodat2
    {no_privileged_files, 85, -1, EPERM, {rules::has(1, rules::set_id_bits)}},    // creat
    {no_privileged_files,
     2,
     -1,
     EPERM,
     {rules::has(1, rules::create_bits), rules::has(2, rules::set_id_bits)}},  // open
    {no_privileged_files,
     257,
     56,
     EPERM,
     {rules::has(2, rules::create_bits), rules::has(3, rules::set_id_bits)}},    // openat
    {no_privileged_files, 437, 437, ENOSYS, {}},                                 // openat2
    {no_privileged_files, 133, -1, EPERM, {rules::has(1, rules::set_id_bits)}},  // mknod
    {no_privileged_files, 259, 33, EPERM, {rules::has(2, rules::set_id_bits)}},  // mknodat
    {no_privileged_files, 188, 5, EOPNOTSUPP, {}},                               // setxattr
    {no_privileged_files, 189, 6, EOPNOTSUPP, {}},                               // lsetxattr
    {no_privileged_files, 190, 7, EOPNOTSUPP, {}},                               // fsetxattr
    {no_privileged_files, 463, 463, ENOSYS, {}},                                 // setxattrat
    {no_privileged_files, 425, 425, ENOSYS, {}},                                 // io_uring_setup
    {no_privileged_files, 426, 426, ENOSYS, {}},                                 // io_uring_enter
    {no_privileged_files, 427, 427, ENOSYS, {}},  // io_uring_register

    {no_kernel_doors, 425, 425, ENOSYS, {}},                                // io_uring_setup
    {no_kernel_doors, 426, 426, ENOSYS, {}},                                // io_uring_enter
    {no_kernel_doors, 427, 427, ENOSYS, {}},                                // io_uring_register
    {no_kernel_doors, 248, 217, EPERM, {}},                                 // add_key
    {no_kernel_doors, 249, 218, EPERM, {}},                                 // request_key
    {no_kernel_doors, 250, 219, EPERM, {}},                                 // keyctl
    {no_kernel_doors, 321, 280, EPERM, {}},                                 // bpf
    {no_kernel_doors, 323, 282, EPERM, {}},                                 // userfaultfd
    {no_kernel_doors, 298, 241, EPERM, {rules::is(1, rules::everything)}},  // perf_event_open: all
    {no_kernel_doors, 298, 241, EPERM, {rules::has(4, 4)}},  // … of a control group
    {no_kernel_doors, 246, 104, EPERM, {}},                  // kexec_load
    {no_kernel_doors, 320, 294, EPERM, {}},                  // kexec_file_load
    {no_kernel_doors, 175, 105, EPERM, {}},                  // init_module
    {no_kernel_doors, 313, 273, EPERM, {}},                  // finit_module
    {no_kernel_doors, 176, 106, EPERM, {}},                  // delete_module
    {no_kernel_doors, 304, 265, EPERM, {}},                  // open_by_handle_at
    {no_kernel_doors, 167, 224, EPERM, {}},                  // swapon
    {no_kernel_doors, 168, 225, EPERM, {}},                  // swapoff
    {no_kernel_doors, 169, 142, EPERM, {}},                  // reboot
    {no_kernel_doors, 163, 89, EPERM, {}},                   // acct
    {no_kernel_doors, 179, 60, EPERM, {}},                   // quotactl
    {no_kernel_doors, 443, 443, EPERM, {}},                  // quotactl_fd
    {no_kernel_doors, 103, 116, EPERM, {}},                  // syslog
    {no_kernel_doors, 164, 170, EPERM, {}},                  // settimeofday
    {no_kernel_doors, 227, 112, EPERM, {}},                  // clock_settime
    {no_kernel_doors, 172, -1, EPERM, {}},                   // iopl
    {no_kernel_doors, 173, -1, EPERM, {}},                   // ioperm
    {no_kernel_doors, 212, 18, EPERM, {}},                   // lookup_dcookie
    {no_kernel_doors, 153, 58, EPERM, {}},                   // vhangup
    {no_kernel_doors,
     135,
     92,
     EPERM,
     {rules::is_not(0, rules::everything), rules::has(0, ~rules::usual_personality)}},
    {no_kernel_doors, 16, 29, EPERM, {rules::is(1, 0x5412)}},      // ioctl: type for a terminal
    {no_kernel_doors, 16, 29, EPERM, {rules::is(1, 0x541c)}},      // … TIOCLINUX, the same
    {no_kernel_doors, 41, 198, EAFNOSUPPORT, {rules::is(0, 30)}},  // socket: TIPC
    {no_kernel_doors, 41, 198, EAFNOSUPPORT, {rules::is(0, 33)}},  // … RXRPC
    {no_kernel_doors, 41, 198, EAFNOSUPPORT, {rules::is(0, 38)}},  // … the kernel's ciphers
    {no_kernel_doors, 41, 198, EAFNOSUPPORT, {rules::is(0, 40)}},  // … the machine's hypervisor

    {no_namespaces, 272, 97, EPERM, {rules::has(0, rules::namespace_bits | rules::new_time)}},
    {no_namespaces, 56, 220, EPERM, {rules::has(0, rules::namespace_bits)}},  // clone
    {no_namespaces, 435, 435, ENOSYS, {}},                                    // clone3
    {no_namespaces, 308, 268, EPERM, {}},                                     // setns
    {no_namespaces, 165, 40, EPERM, {}},                                      // mount
    {no_namespaces, 166, 39, EPERM, {}},                                      // umount2
    {no_namespaces, 155, 41, EPERM, {}},                                      // pivot_root
    {no_namespaces, 428, 428, EPERM, {}},                                     // open_tree
    {no_namespaces, 429, 429, EPERM, {}},                                     // move_mount
    {no_namespaces, 430, 430, EPERM, {}},                                     // fsopen
    {no_namespaces, 431, 431, EPERM, {}},                                     // fsconfig
    {no_namespaces, 432, 432, EPERM, {}},                                     // fsmount
    {no_namespaces, 433, 433, EPERM, {}},                                     // fspick
    {no_namespaces, 442, 442, EPERM, {}},                                     // mount_setattr
    {no_namespaces, 467, 467, EPERM, {}},                                     // open_tree_attr

    // socket: netlink other than NETLINK_ROUTE
    {no_machine_events, 41, 198, EPROTONOSUPPORT, {rules::is(0, 16), rules::is_not(2, 0)}},

    {no_rare_calls, 101, 117, EPERM, {}},  // ptrace
    {no_rare_calls, 310, 270, EPERM, {}},  // process_vm_readv
    {no_rare_calls, 311, 271, EPERM, {}},  // process_vm_writev
    {no_rare_calls, 440, 440, EPERM, {}},  // process_madvise
    {no_rare_calls, 448, 448, EPERM, {}},  // process_mrelease
    {no_rare_calls, 438, 438, EPERM, {}},  // pidfd_getfd
    {no_rare_calls, 312, 272, EPERM, {}},  // kcmp
    {no_rare_calls, 298, 241, EPERM, {}},  // perf_event_open
    {no_rare_calls, 300, 262, EPERM, {}},  // fanotify_init
    {no_rare_calls, 303, 264, EPERM, {}},  // name_to_handle_at
    {no_rare_calls, 278, 75, EPERM, {}},   // vmsplice
    {no_rare_calls, 154, -1, EPERM, {}},   // modify_ldt
    // socket: what is neither local, IPv4, IPv6 nor netlink
    {no_rare_calls, 41, 198, EAFNOSUPPORT, {rules::more_than(0, 16)}},
    {no_rare_calls, 41, 198, EAFNOSUPPORT, {rules::more_than(0, 2), rules::has(0, 4 | 1)}},
    {no_rare_calls, 41, 198, EAFNOSUPPORT, {rules::is(0, 8)}},  // ATM
};

inline constexpr std::size_t rule_instructions_max = 7;
inline constexpr std::size_t named_calls_max = 256;
inline constexpr std::size_t filter_instructions_max =
    9 + rule_instructions_max * (sizeof call_rules / sizeof call_rules[0]) + 2 * named_calls_max;
static_assert(filter_instructions_max <= BPF_MAXINSNS);

struct CallFilter {
  sock_filter code[filter_instructions_max];
  unsigned short length = 0;

  void put(int op, std::uint32_t value, std::uint8_t if_true = 0, std::uint8_t if_false = 0) {
    code[length++] = {static_cast<std::uint16_t>(op), if_true, if_false, value};
  }
  void load(std::size_t offset) {
    put(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
  }
};

// Adds one rule behind a loaded call number. Returns whether the number must be loaded again.
inline bool add_rule(CallFilter& filter, const CallRule& rule, std::uint32_t number) {
  std::size_t tests = 0;
  while (tests < 2 && rule.tests[tests].kind != ArgumentTest::none)
    ++tests;
  // Each test is two instructions, and the answer one.
  filter.put(BPF_JMP | BPF_JEQ | BPF_K, number, 0, static_cast<std::uint8_t>(2 * tests + 1));
  for (std::size_t i = 0; i < tests; ++i) {
    const ArgumentTest& test = rule.tests[i];
    const auto skip = static_cast<std::uint8_t>(2 * (tests - i - 1) + 1);
    // Both machines store the lower half first.
    filter.load(offsetof(seccomp_data, args) + 8u * test.argument);
    const int compare = test.kind == ArgumentTest::any_bit ? BPF_JSET
                        : test.kind == ArgumentTest::above ? BPF_JGT
                                                           : BPF_JEQ;
    const bool inverse = test.kind == ArgumentTest::differs;
    filter.put(BPF_JMP | compare | BPF_K, test.value, inverse ? skip : std::uint8_t{0},
               inverse ? std::uint8_t{0} : skip);
  }
  filter.put(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(rule.error));
  return tests > 0;
}

// System calls by number, of this machine, besides those of the rules.
struct NamedCalls {
  std::uint32_t numbers[named_calls_max] = {};
  std::size_t count = 0;
};

// The filter that refuses what the groups (CallRules, as bits) name.
inline CallFilter make_call_filter(std::uint32_t groups, Machine machine = this_machine) {
  CallFilter filter{};
  const bool x86 = machine == Machine::x86_64;
  filter.load(offsetof(seccomp_data, arch));
  filter.put(BPF_JMP | BPF_JEQ | BPF_K, x86 ? AUDIT_ARCH_X86_64 : AUDIT_ARCH_AARCH64, 1, 0);
  filter.put(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  filter.load(offsetof(seccomp_data, nr));
  if (x86) {
    constexpr std::uint32_t x32_bit = 0x40000000;
    filter.put(BPF_JMP | BPF_JGE | BPF_K, x32_bit, 0, 1);
    filter.put(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  }
  bool reload = false;
  for (const CallRule& rule : call_rules) {
    const int number = x86 ? rule.x86_64 : rule.aarch64;
    if ((rule.group & groups) == 0 || number < 0)
      continue;
    if (reload)
      filter.load(offsetof(seccomp_data, nr));
    reload = add_rule(filter, rule, static_cast<std::uint32_t>(number));
  }
  filter.put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  return filter;
}

inline CallFilter with_named(CallFilter filter, const NamedCalls& named) {
  filter.length--;  // before its last answer
  filter.load(offsetof(seccomp_data, nr));
  for (std::size_t i = 0; i < named.count; ++i) {
    filter.put(BPF_JMP | BPF_JEQ | BPF_K, named.numbers[i], 0, 1);
    filter.put(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  }
  filter.put(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  return filter;
}

// The first version of Landlock forbids moving files between directories: as good as none.
inline constexpr long landlock_version_min = 2;
inline long landlock_version() {
  return syscall(444, nullptr, 0, 1);
}

// A Landlock domain, as far as this kernel has it. `scoped`: also closes abstract sockets and
// signals of processes outside it.
inline const char* enter_landlock_domain(bool scoped) {
  constexpr long create_ruleset = 444, add_rule = 445, restrict_self = 446;
  constexpr std::uint64_t make_device = 1 << 6 | 1 << 11, refer = 1 << 13;
  const long version = landlock_version();
  if (version < landlock_version_min)
    return nullptr;
  const struct {
    std::uint64_t files, network, scoped;
  } rights{make_device | refer, 0, scoped && version >= 6 ? 3u : 0u};
  const std::size_t known = version < 4 ? 8 : version < 6 ? 16 : 24;
  const long domain = syscall(create_ruleset, &rights, known, 0);
  if (domain < 0)
    return "make a Landlock domain";
  struct __attribute__((packed)) {
    std::uint64_t allowed;
    std::int32_t below;
  } moving{refer, open("/", O_PATH | O_CLOEXEC)};
  const bool entered = moving.below >= 0 && syscall(add_rule, domain, 1, &moving, 0) == 0 &&
                       syscall(restrict_self, domain, 0) == 0;
  const int error = errno;
  close(moving.below);
  close(static_cast<int>(domain));
  errno = error;
  return entered ? nullptr : "enter a Landlock domain";
}

// Without the right to drop it, the bounding set gives nothing to a process that gains no
// privileges.
inline const char* give_up_capabilities() {
  for (int one = 0; prctl(PR_CAPBSET_READ, one, 0, 0, 0) >= 0; ++one)
    prctl(PR_CAPBSET_DROP, one, 0, 0, 0);
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  return syscall(SYS_capset, &header, none) == 0 ? nullptr : "give up the capabilities";
}

// For this thread and what it starts. Without root it must have given up new privileges before.
// Returns null, or the step that failed, with errno.
inline const char* refuse_calls(std::uint32_t groups, const NamedCalls& named = {}) {
  const char* failed = groups & (no_outside_peers | own_domain)
                           ? enter_landlock_domain((groups & no_outside_peers) != 0)
                           : nullptr;
  if (!failed && (groups & no_capabilities) != 0)
    failed = give_up_capabilities();
  if (failed)
    return failed;
  CallFilter filter = with_named(make_call_filter(groups), named);
  const sock_fprog program{filter.length, filter.code};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0u, &program) == 0 ? nullptr
                                                                          : "filter system calls";
}

}  // namespace billow::process
