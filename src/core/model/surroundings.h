// What a job needs from its node besides the command.
//
// The tree of its working directory and the paths kept when it ends are variables of the job's
// environment, read by the process that stages them as the job's user. What the agent or the head
// must provide (an image, an environment, volumes, secrets) is in the job's description, and the
// wire carries it resolved: the value of a secret and the source of a volume appear in no
// description and no journal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/enums.h"

namespace billow {

// The network of a job in an image, an environment or behind the wall of strict isolation: its
// node's, or a private one. A private network has a loopback and reaches nothing (none), public
// addresses and those that are allowed (internet), or jobs of the same project on the node
// (project).
enum class ContainerNetwork { host, none, internet, project };
BILLOW_ENUM_NAMES(ContainerNetwork,
                  {ContainerNetwork::host, "host"},
                  {ContainerNetwork::none, "none"},
                  {ContainerNetwork::internet, "internet"},
                  {ContainerNetwork::project, "project"});
// Whether the agent makes the job's network, because it leads out of the job.
constexpr bool is_made_by_agent(ContainerNetwork network) {
  return network == ContainerNetwork::internet || network == ContainerNetwork::project;
}

// How far a job is kept apart from its node and its neighbours. plain: by its user, its control
// groups and a filter on system calls. strict: also by namespaces of its own for everything, with a
// user number that no account has, and without a network.
enum class Isolation { plain, strict };
BILLOW_ENUM_NAMES(Isolation, {Isolation::plain, "plain"}, {Isolation::strict, "strict"});

// Which system calls are refused to a job: those that no usual program needs, or also rarely used
// ones. A job can name more of them.
enum class CallProfile { standard, strict };
BILLOW_ENUM_NAMES(CallProfile, {CallProfile::standard, "default"}, {CallProfile::strict, "strict"});

namespace surroundings {
inline constexpr const char* files = "BILLOW_FILES";  // digest of the tree in its working directory
// Paths in it that are kept when it ends, one per line.
inline constexpr const char* outputs = "BILLOW_OUTPUTS";
}  // namespace surroundings

// `--volume data:/mnt/data:ro`
struct VolumeWish {
  std::string name;
  std::string path;
  bool read_only = false;
  bool operator==(const VolumeWish&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("path", s.path);
    v("read_only", s.read_only);
  }
};

// `--secret HF_TOKEN`, `--secret HF_TOKEN=TOKEN`, `--secret key:/run/key`: either a variable or a
// file.
struct SecretWish {
  std::string name;
  std::string variable;
  std::string file;
  bool operator==(const SecretWish&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("variable", s.variable);
    v("file", s.file);
  }
};

// `--input s3://bucket/prefix:path`, `--output path=s3://bucket/prefix`
struct ObjectWish {
  std::string url;
  std::string path;
  bool operator==(const ObjectWish&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("url", s.url);
    v("path", s.path);
  }
};

struct Surroundings {
  std::string image;               // name of an OCI image; empty: none, runs directly on the node
  std::string environment;         // a saved environment's name…
  std::string environment_digest;  // …and its content at submission, which a rerun uses again
  std::vector<VolumeWish> volumes;
  std::vector<SecretWish> secrets;
  std::vector<ObjectWish> inputs;   // copied before the command starts
  std::vector<ObjectWish> outputs;  // uploaded when it has ended
  ContainerNetwork network = ContainerNetwork::host;
  std::int64_t processes_max =
      0;  // processes and threads of the job on one node; 0: limits::task_processes_max
  Isolation isolation = Isolation::plain;
  CallProfile seccomp = CallProfile::standard;
  std::vector<std::string> refused_calls;  // names of system calls, besides those of the profile
  // Private networks that a job with the network `internet` reaches (AddressBlock).
  std::vector<std::string> allow;
  std::string registry_secret;  // a secret with the login for the registry of `image`
  bool operator==(const Surroundings&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("image", s.image);
    v("environment", s.environment);
    v("environment_digest", s.environment_digest);
    v("volumes", s.volumes);
    v("secrets", s.secrets);
    v("inputs", s.inputs);
    v("outputs", s.outputs);
    v("network", s.network);
    v("processes_max", s.processes_max);
    v("isolation", s.isolation);
    v("seccomp", s.seccomp);
    v("refused_calls", s.refused_calls);
    v("allow", s.allow);
    v("registry_secret", s.registry_secret);
  }
};
// The names of all secrets that the job uses, itself or to fetch its image.
inline std::vector<std::string> secret_names(const Surroundings& s) {
  std::vector<std::string> names;
  for (const SecretWish& wish : s.secrets)
    names.push_back(wish.name);
  if (!s.registry_secret.empty())
    names.push_back(s.registry_secret);
  return names;
}

// ---- as sent to a node
struct BoundVolume {
  std::string source;  // on the node
  std::string path;    // in the job
  bool read_only = false;
  bool operator==(const BoundVolume&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("source", s.source);
    v("path", s.path);
    v("read_only", s.read_only);
  }
};
struct GivenSecret {
  std::string variable;  // one of the two
  std::string file;
  std::string value;
  bool operator==(const GivenSecret&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("variable", s.variable);
    v("file", s.file);
    v("value", s.value);
  }
};
// For the pull of the image only; the job itself does not get it.
struct GivenLogin {
  std::string secret;  // its name, for messages; empty: none
  std::string value;   // in base64: USER:PASSWORD, or an auth.json of podman or docker
  bool operator==(const GivenLogin&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("secret", s.secret);
    v("value", s.value);
  }
};

}  // namespace billow
