#include "supervise/spec.h"

#include <string.h>

namespace billow::supervise {
namespace {

struct Entry {
  SpecTag tag;
  const char* data;
  std::uint32_t bytes;
};

template <class T>
bool number(const Entry& e, T* out) {
  if (e.bytes != sizeof(T))
    return false;
  memcpy(out, e.data, sizeof(T));
  return true;
}

// A string: ends in NUL and has none inside.
bool text(const Entry& e, const char** out) {
  if (e.bytes == 0 || e.data[e.bytes - 1] != 0 || memchr(e.data, 0, e.bytes - 1) != nullptr)
    return false;
  *out = e.data;
  return true;
}

bool absolute(const Entry& e, const char** out) {
  return text(e, out) && (*out)[0] == '/';
}

// "ro" or "rw", and two absolute paths that do not lead upwards, a line each.
bool bind_line(const Entry& e, const char** out) {
  if (!text(e, out) || (strncmp(*out, "ro\n/", 4) != 0 && strncmp(*out, "rw\n/", 4) != 0))
    return false;
  const char* second = strchr(*out + 3, '\n');
  return second != nullptr && second[1] == '/' && second[2] != 0 &&
         strchr(second + 1, '\n') == nullptr && strstr(*out, "/../") == nullptr && e.bytes < 8192;
}

// Absolute, without a way upwards. A name may begin with dots.
bool shown_path(const Entry& e, const char** out) {
  if (!absolute(e, out) || e.bytes >= 4096)
    return false;
  for (const char* at = strstr(*out, "/.."); at != nullptr; at = strstr(at + 1, "/.."))
    if (at[3] == 0 || at[3] == '/')
      return false;
  return true;
}

// Relative to /dev and unable to leave it.
bool device_name(const Entry& e, const char** out) {
  return text(e, out) && (*out)[0] != 0 && (*out)[0] != '/' && strstr(*out, "..") == nullptr;
}

bool not_negative(const Entry& e, std::int64_t* out) {
  return number(e, out) && *out >= 0;
}

const char* read_identity(const Entry& e, Spec* s) {
  if (e.tag == SpecTag::uid)
    return (s->has_uid = number(e, &s->uid)) ? nullptr : "spec: bad uid";
  if (e.tag == SpecTag::gid)
    return (s->has_gid = number(e, &s->gid)) ? nullptr : "spec: bad gid";
  if (e.bytes % sizeof(std::uint32_t) != 0 || e.bytes / sizeof(std::uint32_t) > spec_groups_max)
    return "spec: bad groups";
  if (e.bytes > 0)
    memcpy(s->groups, e.data, e.bytes);
  s->groups_count = e.bytes / sizeof(std::uint32_t);
  s->has_groups = true;
  return nullptr;
}

const char* read_rlimit(const Entry& e, Spec* s) {
  struct Wire {
    std::uint32_t resource, zero;
    std::uint64_t soft, hard;
  } wire;
  if (!number(e, &wire) || s->rlimits_count == spec_rlimits_max || wire.resource >= 16 ||
      wire.soft > wire.hard)
    return "spec: bad rlimit";
  s->rlimits[s->rlimits_count++] = {wire.resource, wire.soft, wire.hard};
  return nullptr;
}

const char* read_terminal(const Entry& e, Spec* s) {
  std::uint16_t size[2];
  if (!number(e, &size))
    return "spec: bad terminal size";
  s->pty = true;
  s->rows = size[0];
  s->columns = size[1];
  return nullptr;
}

const char* read_log_limit(const Entry& e, Spec* s) {
  if (e.tag == SpecTag::log_segment_bytes)
    return number(e, &s->log_segment_bytes) && s->log_segment_bytes >= 4096
               ? nullptr
               : "spec: bad log segment size";
  return number(e, &s->log_segments_max) && s->log_segments_max >= 1 && s->log_segments_max <= 64
             ? nullptr
             : "spec: bad number of log segments";
}

const char* read_cgroup(const Entry& e, Spec* s) {
  const char** path = nullptr;
  if (e.tag == SpecTag::cgroup_v2)
    path = &s->cgroup_v2;
  else if (e.tag == SpecTag::cgroup_memory)
    path = &s->cgroup_memory;
  else if (e.tag == SpecTag::cgroup_freezer_v1)
    path = &s->cgroup_freezer_v1;
  else if (s->cgroups_v1_count == spec_cgroups_v1_max)
    return "spec: too many cgroups";
  else
    path = &s->cgroups_v1[s->cgroups_v1_count++];
  return absolute(e, path) ? nullptr : "spec: bad cgroup path";
}

// Entries that say all by being there.
const char* read_mark(SpecTag tag, Spec* s) {
  s->one_stream |= tag == SpecTag::one_stream;
  s->stdin_open |= tag == SpecTag::stdin_open;
  s->user_namespace |= tag == SpecTag::user_namespace;
  s->own_network |= tag == SpecTag::own_network;
  s->no_new_privs |= tag == SpecTag::no_new_privs;
  s->private_proc |= tag == SpecTag::private_proc;
  return nullptr;
}

// One entry, except those of lists.
const char* read_entry(const Entry& e, Spec* s) {
  switch (e.tag) {
    case SpecTag::argv:
    case SpecTag::env:
    case SpecTag::hide_device:
    case SpecTag::bind:
    case SpecTag::shown:
      return nullptr;  // the caller gathers the lists
    case SpecTag::cwd:
      return absolute(e, &s->cwd) ? nullptr
                                  : "spec: the working directory must be an absolute path";
    case SpecTag::uid:
    case SpecTag::gid:
    case SpecTag::groups:
      return read_identity(e, s);
    case SpecTag::umask:
      return number(e, &s->umask) && s->umask <= 0777 ? nullptr : "spec: bad umask";
    case SpecTag::pty:
      return read_terminal(e, s);
    case SpecTag::one_stream:
    case SpecTag::stdin_open:
    case SpecTag::user_namespace:
    case SpecTag::own_network:
    case SpecTag::no_new_privs:
    case SpecTag::private_proc:
      return read_mark(e.tag, s);
    case SpecTag::log_segment_bytes:
    case SpecTag::log_segments_max:
      return read_log_limit(e, s);
    case SpecTag::time_limit_ns:
      return not_negative(e, &s->time_limit_ns) ? nullptr : "spec: bad time limit";
    case SpecTag::paid_until_boot_ns:
      return not_negative(e, &s->paid_until_boot_ns) ? nullptr : "spec: bad paid_until";
    case SpecTag::stop_grace_ns:
      return not_negative(e, &s->stop_grace_ns) ? nullptr : "spec: bad stop grace";
    case SpecTag::leftover_grace_ns:
      return not_negative(e, &s->leftover_grace_ns) ? nullptr : "spec: bad leftover grace";
    case SpecTag::cgroup_v2:
    case SpecTag::cgroup_v1:
    case SpecTag::cgroup_memory:
    case SpecTag::cgroup_freezer_v1:
      return read_cgroup(e, s);
    case SpecTag::rlimit:
      return read_rlimit(e, s);
    case SpecTag::nice:
      return (s->has_nice = number(e, &s->nice)) ? nullptr : "spec: bad nice value";
    case SpecTag::die_with_pid:
      return number(e, &s->die_with_pid) && s->die_with_pid > 0 ? nullptr
                                                                : "spec: bad die_with_pid";
    case SpecTag::subscription:
      return number(e, &s->subscription) && s->subscription <= 2 ? nullptr
                                                                 : "spec: bad subscription";
    case SpecTag::meta:
      return nullptr;
    case SpecTag::private_tmp:
      return absolute(e, &s->private_tmp) ? nullptr : "spec: bad private_tmp";
    case SpecTag::refused_calls:
      return number(e, &s->refused_calls) ? nullptr : "spec: bad refused_calls";
    case SpecTag::oom_score_adj:
      return (s->has_oom_score_adj = number(e, &s->oom_score_adj)) ? nullptr
                                                                   : "spec: bad oom_score_adj";
  }
  return nullptr;  // a tag of a newer agent
}

bool next_entry(const char* data, std::size_t bytes, std::size_t* at, Entry* out) {
  SpecEntry head;
  if (bytes - *at < sizeof(head))
    return false;
  memcpy(&head, data + *at, sizeof(head));
  *at += sizeof(head);
  if (bytes - *at < head.bytes)
    return false;
  *out = {static_cast<SpecTag>(head.tag), data + *at, head.bytes};
  *at += head.bytes;
  return true;
}

// Gathers the strings of one list, in order, into a NULL-terminated array.
const char* gather(const char* data,
                   std::size_t bytes,
                   SpecTag tag,
                   const char*** pointers,
                   std::size_t* left,
                   const char*** list,
                   std::uint32_t* count) {
  *list = *pointers;
  for (std::size_t at = sizeof(SpecHeader); at < bytes;) {
    Entry e;
    if (!next_entry(data, bytes, &at, &e))
      return "spec: an entry reaches beyond the end";
    if (e.tag != tag)
      continue;
    if (*left < 2)
      return "spec: too many entries";
    const bool good = tag == SpecTag::hide_device ? device_name(e, *pointers)
                      : tag == SpecTag::bind      ? bind_line(e, *pointers)
                      : tag == SpecTag::shown     ? shown_path(e, *pointers)
                                                  : text(e, *pointers);
    if (!good)
      return "spec: a string is malformed";
    ++*pointers;
    --*left;
    ++*count;
  }
  if (*left < 1)
    return "spec: too many entries";
  **pointers = nullptr;
  ++*pointers;
  --*left;
  return nullptr;
}

}  // namespace

const char* decode_spec(const char* data,
                        std::size_t bytes,
                        const char** pointers,
                        std::size_t pointers_count,
                        Spec* out) {
  memset(out, 0, sizeof(*out));
  out->cwd = "/";
  out->umask = 022;
  out->log_segment_bytes = 16u << 20;
  out->log_segments_max = 8;
  out->stop_grace_ns = 10'000'000'000;
  out->leftover_grace_ns = 1'000'000'000;
  SpecHeader header;
  if (bytes < sizeof(header) || bytes > spec_bytes_max)
    return "spec: wrong size";
  memcpy(&header, data, sizeof(header));
  if (header.magic != spec_magic)
    return "spec: not a task spec";
  if (header.version != protocol_version)
    return "spec: of another version";
  if (header.bytes != bytes)
    return "spec: cut short";
  for (std::size_t at = sizeof(header); at < bytes;) {
    Entry e;
    if (!next_entry(data, bytes, &at, &e))
      return "spec: an entry reaches beyond the end";
    if (const char* wrong = read_entry(e, out))
      return wrong;
  }
  std::size_t left = pointers_count;
  if (const char* wrong =
          gather(data, bytes, SpecTag::argv, &pointers, &left, &out->argv, &out->argv_count))
    return wrong;
  if (const char* wrong =
          gather(data, bytes, SpecTag::env, &pointers, &left, &out->env, &out->env_count))
    return wrong;
  if (const char* wrong = gather(data, bytes, SpecTag::hide_device, &pointers, &left,
                                 &out->hide_devices, &out->hide_count))
    return wrong;
  if (const char* wrong =
          gather(data, bytes, SpecTag::bind, &pointers, &left, &out->binds, &out->binds_count))
    return wrong;
  if (const char* wrong =
          gather(data, bytes, SpecTag::shown, &pointers, &left, &out->shown, &out->shown_count))
    return wrong;
  if (out->argv_count == 0 || out->argv[0][0] == 0)
    return "spec: no command";
  return nullptr;
}

}  // namespace billow::supervise
