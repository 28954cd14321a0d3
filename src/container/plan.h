// What `billow box` is told: the room in which a job's command runs. The agent makes it, and it
// travels in one variable of the job's environment, because a command line is for all the machine
// to read. What the job's own variables hold is not in it.
#pragma once

#include <string>
#include <vector>

namespace billow::container {

inline constexpr const char* plan_variable = "BILLOW_BOX_PLAN";
inline constexpr const char* as_user_path =
    "/usr/lib/billow/billow-as-user";  // where what makes an image's own user lies inside
inline constexpr const char* driver_dir =
    "/usr/lib/billow-driver";  // where the GPU driver's libraries lie inside

// A directory or file of the machine that is seen inside.
struct Mount {
  std::string source, target;
  bool read_only = false;
  bool optional = false;  // left out where the source is not there
  bool operator==(const Mount&) const = default;
  template <class V>
  void fields(V& v) {
    v("source", source);
    v("target", target);
    v("read_only", read_only);
    v("optional", optional);
  }
};

// What an image says about how its program is started.
struct ImageConfig {
  std::vector<std::string> env;  // NAME=value
  std::vector<std::string> entrypoint;
  std::vector<std::string> command;
  std::string directory;
  std::string user;  // "", "1000", "app", "app:staff"
  bool operator==(const ImageConfig&) const = default;
  template <class V>
  void fields(V& v) {
    v("env", env);
    v("entrypoint", entrypoint);
    v("command", command);
    v("directory", directory);
    v("user", user);
  }
};

// An image as it lies in a user's store.
struct LocalImage {
  std::string id;      // of its configuration
  std::string digest;  // "sha256:…" of its manifest: what names this very image everywhere
  std::string name;    // as it was found
  std::vector<std::string>
      layers;  // short names in the store's directory of layers, the uppermost first
  ImageConfig config;
  std::int64_t bytes = 0;
  template <class V>
  void fields(V& v) {
    v("id", id);
    v("digest", digest);
    v("name", name);
    v("layers", layers);
    v("config", config);
    v("bytes", bytes);
  }
};

// A tree that is seen at its own path, with what is written into it kept apart.
struct Overlay {
  std::string lower, target;
  bool operator==(const Overlay&) const = default;
  template <class V>
  void fields(V& v) {
    v("lower", lower);
    v("target", target);
  }
};

struct Plan {
  std::string key;    // tells this task's scratch space from all others
  std::string store;  // of the job's user
  bool root = false;  // the job sees another root directory: an image, or a saved root file system
  std::string uses;   // digest of the environment, or number of the image, it is made of
  std::string layers_dir;           // the layers below are relative to it
  std::vector<std::string> layers;  // the uppermost first
  ImageConfig config;
  std::vector<Mount> mounts;
  std::vector<std::string> devices;       // paths of device files
  std::vector<std::string> env;           // added by Billow for what is mounted, NAME=value
  std::vector<std::string> library_dirs;  // to be looked through last
  std::vector<Overlay> overlays;          // where the root is the machine's own
  std::string directory;                  // working directory; empty: as the image says
  bool terminal = false;
  bool no_network = false;  // nothing but a loopback of its own
  bool operator==(const Plan&) const = default;
  template <class V>
  void fields(V& v) {
    v("key", key);
    v("store", store);
    v("root", root);
    v("uses", uses);
    v("layers_dir", layers_dir);
    v("layers", layers);
    v("config", config);
    v("mounts", mounts);
    v("devices", devices);
    v("env", env);
    v("library_dirs", library_dirs);
    v("overlays", overlays);
    v("directory", directory);
    v("terminal", terminal);
    v("no_network", no_network);
  }
};

inline std::string scratch_dir(const std::string& store, const std::string& key) {
  return store + "/scratch/" + key;
}

}  // namespace billow::container
