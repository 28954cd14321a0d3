#include "pool/kubernetes/pod_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/text.h"

namespace billow::pool {
namespace {

std::vector<std::string> comma_list(const std::string& text) {
  std::vector<std::string> out;
  for (const std::string& part : split(text, ','))
    if (!trim(part).empty())
      out.emplace_back(trim(part));
  return out;
}

bool all_of_set(std::string_view text, std::string_view more) {
  return std::ranges::all_of(text, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || more.find(c) != std::string_view::npos;
  });
}

// Names of objects: "[a-z0-9]([-a-z0-9.]*[a-z0-9])?".
Status check_object_name(std::string_view what, std::string_view name) {
  const bool good = !name.empty() && name.size() <= 253 && all_of_set(name, "-.") &&
                    lower(name) == name && std::isalnum(static_cast<unsigned char>(name.front())) &&
                    std::isalnum(static_cast<unsigned char>(name.back()));
  if (!good)
    return fail(Code::invalid,
                fmt::format("option {}: \"{}\" is not a name of Kubernetes", what, name),
                "use lower-case letters, digits, \"-\" and \".\"");
  return {};
}

Status check_quantity(std::string_view what, std::string_view text) {
  if (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0])) || !all_of_set(text, "."))
    return fail(Code::invalid, fmt::format("option {}: \"{}\" is not a quantity", what, text),
                "write it as Kubernetes does: 4, 500m, 16Gi");
  return {};
}

Result<std::map<std::string, std::string>> read_selector(const std::string& text) {
  std::map<std::string, std::string> out;
  for (const std::string& part : comma_list(text)) {
    const auto equals = part.find('=');
    if (equals == 0 || equals == std::string::npos)
      return fail(Code::invalid, fmt::format("option node-selector: \"{}\" is not KEY=VALUE", part),
                  "for example node-selector=disk=nvme,team=vision");
    out[part.substr(0, equals)] = part.substr(equals + 1);
  }
  return out;
}

// KEY[=VALUE][:EFFECT], as `kubectl taint` writes them.
Result<std::vector<Toleration>> read_tolerations(const std::string& text) {
  std::vector<Toleration> out;
  for (std::string part : comma_list(text)) {
    Toleration one;
    if (const auto colon = part.rfind(':'); colon != std::string::npos) {
      one.effect = part.substr(colon + 1);
      part.resize(colon);
      if (one.effect != "NoSchedule" && one.effect != "PreferNoSchedule" &&
          one.effect != "NoExecute")
        return fail(Code::invalid,
                    fmt::format("option tolerations: unknown effect \"{}\"", one.effect),
                    "use NoSchedule, PreferNoSchedule or NoExecute");
    }
    const auto equals = part.find('=');
    one.key = part.substr(0, equals);
    if (equals != std::string::npos)
      one.value = part.substr(equals + 1);
    if (one.key.empty())
      return fail(Code::invalid, fmt::format("option tolerations: \"{}\" has no key", text),
                  "for example tolerations=dedicated=gpu:NoSchedule");
    out.push_back(std::move(one));
  }
  return out;
}

// pvc/CLAIM:/PATH[:ro] and host/DIRECTORY:/PATH[:ro].
Result<std::vector<PodVolume>> read_volumes(const std::string& text) {
  std::vector<PodVolume> out;
  for (const std::string& part : comma_list(text)) {
    const auto pieces = split(part, ':');
    const auto slash = pieces[0].find('/');
    const std::string kind = pieces[0].substr(0, slash);
    PodVolume volume;
    volume.read_only = pieces.size() == 3 && pieces[2] == "ro";
    if (pieces.size() < 2 || pieces.size() > 3 || (pieces.size() == 3 && !volume.read_only) ||
        slash == std::string::npos || (kind != "pvc" && kind != "host") ||
        !pieces[1].starts_with("/"))
      return fail(Code::invalid, fmt::format("option volumes: \"{}\" is not valid", part),
                  "write pvc/CLAIM:/PATH or host/DIRECTORY:/PATH, each with :ro for read-only");
    volume.kind = kind == "pvc" ? PodVolume::Kind::claim : PodVolume::Kind::host;
    volume.source = pieces[0].substr(volume.kind == PodVolume::Kind::claim ? slash + 1 : slash);
    volume.path = pieces[1];
    if (volume.kind == PodVolume::Kind::claim)
      BILLOW_TRY_VOID(check_object_name("volumes", volume.source));
    out.push_back(std::move(volume));
  }
  return out;
}

Status read_user(const std::string& text, PodSettings& settings) {
  const auto parts = split(text, ':');
  const auto user = parse_int(parts[0], 1, INT32_MAX);
  const auto group = parse_int(parts.back(), 1, INT32_MAX);
  if (!user || !group || parts.size() > 2)
    return fail(Code::invalid, fmt::format("option user: \"{}\" is not UID or UID:GID", text),
                "root needs privileged=yes instead");
  settings.user = *user;
  settings.group = *group;
  return {};
}

Result<bool> read_flag(std::string_view name, const std::string& text) {
  if (text == "yes" || text == "true")
    return true;
  if (text == "no" || text == "false")
    return false;
  return fail(Code::invalid, fmt::format("option {}: \"{}\" is neither yes nor no", name, text));
}

Result<Duration> read_whole_seconds(std::string_view name, const std::string& text) {
  auto time = parse_duration(text);
  if (!time)
    return pass(time.error(), fmt::format("option {}", name));
  if (*time < seconds(1) || *time > hours(24))
    return fail(Code::invalid, fmt::format("option {} must be between 1 s and 1 d", name));
  return seconds(time->ns / seconds(1).ns);
}

template <class T>
Status into(T& target, Result<T> value) {
  if (!value)
    return pass(value.error());
  target = std::move(*value);
  return {};
}

// One option: its name, its help and where its value goes.
struct Reader {
  std::string_view name, help;
  Status (*read)(const std::string&, PodSettings&);
};

Status plain(std::string& target, const std::string& value) {
  target = value;
  return {};
}
Status named(std::string_view what, std::string& target, const std::string& value) {
  target = value;
  return check_object_name(what, value);
}
Status amount(std::string_view what, std::string& target, const std::string& value) {
  target = value;
  return check_quantity(what, value);
}

using Text = const std::string&;
using To = PodSettings&;

constexpr Reader readers[] = {
    {"kubeconfig",
     "file on the head's machine (default: $KUBECONFIG, ~/.kube/config, then the "
     "pod's service account)",
     [](Text v, To s) {
       return plain(s.cluster.kubeconfig, v);
     }},
    {"context", "context of the kubeconfig (default: the current one)",
     [](Text v, To s) {
       return plain(s.cluster.context, v);
     }},
    {"namespace", "namespace of the pods (default: that of the context)",
     [](Text v, To s) {
       return named("namespace", s.name_space, v);
     }},
    {"image",
     "container image of the nodes, with curl or python3 or billow (default "
     "docker.io/library/python:3.12-slim-bookworm)",
     [](Text v, To s) {
       return plain(s.image, v);
     }},
    {"program",
     "path of billow in the image (default: found in its PATH, else fetched from the head)",
     [](Text v, To s) {
       return plain(s.program, v);
     }},
    {"gpu-resource",
     "resource that GPUs are requested by, e.g. nvidia.com/mig-1g.10gb (default: "
     "nvidia.com/gpu or amd.com/gpu)",
     [](Text v, To s) {
       return plain(s.gpu_resource, v);
     }},
    {"gpu-product",
     "values of the node label nvidia.com/gpu.product or amd.com/gpu.product-name; \"any\" for a "
     "cluster with one GPU type (default: found on the nodes)",
     [](Text v, To s) {
       return into(s.gpu_products, Result<std::vector<std::string>>(comma_list(v)));
     }},
    {"node-selector", "labels that nodes must have: KEY=VALUE,…",
     [](Text v, To s) {
       return into(s.node_selector, read_selector(v));
     }},
    {"tolerations", "taints to tolerate: KEY[=VALUE][:EFFECT],… (default: that of the GPUs)",
     [](Text v, To s) {
       return into(s.tolerations, read_tolerations(v));
     }},
    {"runtime-class", "runtime class, e.g. nvidia",
     [](Text v, To s) {
       return named("runtime-class", s.runtime_class, v);
     }},
    {"priority-class", "priority class",
     [](Text v, To s) {
       return named("priority-class", s.priority_class, v);
     }},
    {"pull-secrets", "secrets with which the image is pulled: NAME,…",
     [](Text v, To s) {
       return into(s.pull_secrets, Result<std::vector<std::string>>(comma_list(v)));
     }},
    {"volumes", "pvc/CLAIM:/PATH[:ro] or host/DIRECTORY:/PATH[:ro],…",
     [](Text v, To s) {
       return into(s.volumes, read_volumes(v));
     }},
    {"queue", "queue of Kueue or Volcano",
     [](Text v, To s) {
       return named("queue", s.queue, v);
     }},
    {"queue-system", "kueue (default) or volcano",
     [](Text v, To s) -> Status {
       s.queue_system = v == "volcano" ? QueueSystem::volcano : QueueSystem::kueue;
       if (v != "volcano" && v != "kueue")
         return fail(Code::invalid, fmt::format("option queue-system: unknown system \"{}\"", v),
                     "use kueue or volcano");
       return {};
     }},
    {"gang-topology",
     "node label that all nodes of a gang must share, e.g. "
     "topology.kubernetes.io/zone",
     [](Text v, To s) {
       return plain(s.topology_key, v);
     }},
    {"rack-label",
     "node label that names a node's rack (default: topology.kubernetes.io/rack and those of "
     "NVIDIA, AWS and Google)",
     [](Text v, To s) {
       return plain(s.rack_label, v);
     }},
    {"cpus", "CPUs of a pod, as request and limit (default: neither)",
     [](Text v, To s) {
       return amount("cpus", s.cpus, v);
     }},
    {"memory", "memory of a pod, as request and limit (default: neither)",
     [](Text v, To s) {
       return amount("memory", s.memory, v);
     }},
    {"shm", "size of /dev/shm (default: no limit but the pod's memory)",
     [](Text v, To s) {
       return amount("shm", s.shared_memory, v);
     }},
    {"user", "UID or UID:GID of the agent and its jobs (default 1000)",
     [](Text v, To s) {
       return read_user(v, s);
     }},
    {"privileged", "yes: privileged pods, which slices, suspend and --image need",
     [](Text v, To s) {
       return into(s.privileged, read_flag("privileged", v));
     }},
    {"grace", "time to save work when a pod is evicted (default 60s)",
     [](Text v, To s) {
       return into(s.grace, read_whole_seconds("grace", v));
     }},
    {"lost-after", "give up pods of a node that has been silent this long (default 60s)",
     [](Text v, To s) {
       return into(s.lost_after, read_whole_seconds("lost-after", v));
     }},
};

// Plugins that a kubeconfig names run as the head; the others open the cluster's nodes.
bool with_heads_rights(std::string_view option) {
  return option == "kubeconfig" || option == "volumes" || option == "privileged";
}

}  // namespace

const std::vector<KindOption>& kubernetes_options() {
  static const std::vector<KindOption> all = [] {
    std::vector<KindOption> options;
    for (const Reader& reader : readers)
      options.push_back({reader.name, reader.help, false, with_heads_rights(reader.name)});
    return options;
  }();
  return all;
}

Result<PodSettings> read_pod_settings(const billow::Pool& pool) {
  PodSettings settings;
  for (const Reader& reader : readers)
    if (const auto given = pool.options.find(std::string(reader.name)); given != pool.options.end())
      BILLOW_TRY_VOID(reader.read(given->second, settings));
  BILLOW_TRY_VOID(check_object_name("NAME", pool.name));
  return settings;
}

}  // namespace billow::pool
