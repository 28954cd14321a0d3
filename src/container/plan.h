// The plan that the agent gives `billow box`: the container in which a job's command runs. It
// travels in one environment variable, because every user of the node can read a command line. It
// does not contain the values of the job's variables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace billow::container {

inline constexpr const char* plan_variable = "BILLOW_BOX_PLAN";
// Paths inside the container: the program that switches to the image's user and that is its first
// process, and the GPU driver's libraries.
inline constexpr const char* as_user_path = "/run/billow-as-user";
inline constexpr const char* init_word = "init";        // its argument as the first process
inline constexpr const char* confine_word = "confine";  // and to refuse system calls
inline constexpr const char* shared_memory = "/dev/shm";
inline constexpr const char* hosts_path = "/etc/hosts";
inline constexpr const char* driver_dir = "/usr/lib/billow-driver";

// A directory or file of the node that is mounted in the container.
struct Mount {
  std::string source, target;
  bool read_only = false;
  bool optional = false;  // skipped if the source does not exist
  bool exact = false;  // the source was checked; a link in it was put there since, and is an error
  bool operator==(const Mount&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("source", s.source);
    v("target", s.target);
    v("read_only", s.read_only);
    v("optional", s.optional);
    v("exact", s.exact);
  }
};

// The image's own settings for starting its program.
struct ImageConfig {
  std::vector<std::string> env;  // NAME=value
  std::vector<std::string> entrypoint;
  std::vector<std::string> command;
  std::string directory;
  std::string user;  // "", "1000", "app", "app:staff"
  bool operator==(const ImageConfig&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("env", s.env);
    v("entrypoint", s.entrypoint);
    v("command", s.command);
    v("directory", s.directory);
    v("user", s.user);
  }
};

// An image in a user's store.
struct LocalImage {
  std::string id;      // of its configuration
  std::string digest;  // "sha256:…" of its manifest; identifies exactly this image everywhere
  std::string name;    // the name under which it was found
  std::vector<std::string> layers;  // short names in the store's layer directory, topmost first
  ImageConfig config;
  std::int64_t bytes = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("digest", s.digest);
    v("name", s.name);
    v("layers", s.layers);
    v("config", s.config);
    v("bytes", s.bytes);
  }
};

// A directory tree mounted at its own path, with a separate writable layer.
struct Overlay {
  std::string lower, target;
  bool operator==(const Overlay&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("lower", s.lower);
    v("target", s.target);
  }
};

struct Plan {
  std::string key;    // name of this task's scratch directory
  std::string store;  // of the job's user
  bool root = false;  // the job gets another root directory: an image or a saved root file system
  std::string uses;   // digest of the environment, or id of the image, it is made from
  std::string layers_dir;           // base directory of the layers
  std::vector<std::string> layers;  // topmost first
  ImageConfig config;
  std::vector<Mount> mounts;
  std::vector<std::string> devices;       // paths of device files
  std::vector<std::string> env;           // added by Billow for the mounts, NAME=value
  std::vector<std::string> library_dirs;  // searched last
  std::vector<Overlay> overlays;          // used when the root is the node's own
  std::string directory;                  // working directory; empty: the image's
  bool terminal = false;
  bool no_network = false;  // only a loopback device
  // The containers of the task's ranks work together: they share the node's process ids and IPC
  // objects, and one /dev/shm, which is among the mounts. Otherwise a container has its own.
  bool shared = false;
  // The unprivileged user of the node that is root in a container of root; 0: the job's own user.
  std::uint32_t outside_uid = 0, outside_gid = 0;
  // System calls that are refused to the job: CallRules of process/call_filter_linux.h, as bits.
  std::uint32_t refused_calls = 0;
  // The root shows the node's own programs and settings, read-only, and nothing else of the node.
  bool node_root = false;
  // Not without process ids of its own: the job must not reach its user's other processes.
  bool confined = false;
  // Strict isolation: also nothing to see of other jobs' control groups and of the node's network.
  bool strict = false;
  // Numbers of system calls that are refused besides the rules.
  std::vector<std::uint32_t> refused_numbers;
  // The network namespace in which it must already be: its inode. 0: the node's, or no_network.
  std::uint64_t network = 0;
  bool operator==(const Plan&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("key", s.key);
    v("store", s.store);
    v("root", s.root);
    v("uses", s.uses);
    v("layers_dir", s.layers_dir);
    v("layers", s.layers);
    v("config", s.config);
    v("mounts", s.mounts);
    v("devices", s.devices);
    v("env", s.env);
    v("library_dirs", s.library_dirs);
    v("overlays", s.overlays);
    v("directory", s.directory);
    v("terminal", s.terminal);
    v("no_network", s.no_network);
    v("shared", s.shared);
    v("outside_uid", s.outside_uid);
    v("outside_gid", s.outside_gid);
    v("refused_calls", s.refused_calls);
    v("node_root", s.node_root);
    v("confined", s.confined);
    v("strict", s.strict);
    v("refused_numbers", s.refused_numbers);
    v("network", s.network);
  }
};

// The word that tells the program at as_user_path what to refuse: "6,101".
inline std::string confinement(std::uint32_t groups, const std::vector<std::uint32_t>& numbers) {
  std::string text = std::to_string(groups);
  for (const std::uint32_t number : numbers)
    text += "," + std::to_string(number);
  return text;
}

inline std::string scratch_dir(const std::string& store, const std::string& key) {
  return store + "/scratch/" + key;
}

}  // namespace billow::container
