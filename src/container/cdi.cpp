#include "container/cdi.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/file.h"
#include "base/text.h"

namespace billow::container {
namespace {

bool is_library(std::string_view name) {
  if (name.find(".so.") == std::string_view::npos)
    return false;
  for (const std::string_view stem :
       {"libcuda.so.", "libcudadebugger.so.", "libnvidia-ml.so.", "libnvidia-ptxjitcompiler.so.",
        "libnvidia-nvvm", "libnvidia-gpucomp.so.", "libnvidia-opencl.so.", "libnvidia-cfg.so.",
        "libnvidia-allocator.so.", "libnvidia-nscq.so.", "libnvidia-encode.so.",
        "libnvidia-opticalflow.so.", "libnvcuvid.so.", "libnvidia-pkcs11", "libnvidia-tileiras.so.",
        "libnvidia-sandboxutils.so."})
    if (name.starts_with(stem))
      return true;
  return false;
}

std::string base_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

void list_directory(const std::string& path, const std::function<void(std::string_view)>& fn) {
  DIR* dir = ::opendir(path.c_str());
  if (!dir)
    return;
  while (const dirent* item = ::readdir(dir))
    fn(item->d_name);
  ::closedir(dir);
}

Json device_node(const std::string& path) {
  return Json::object({{"path", path}});
}

}  // namespace

DriverFiles find_driver_files(const std::string& root) {
  DriverFiles out;
  std::set<std::string> seen;  // the first directory that has one decides
  for (const char* dir : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                          "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/lib"})
    list_directory(root + dir, [&](std::string_view name) {
      if (is_library(name) && seen.insert(std::string(name)).second)
        out.libraries.push_back(fmt::format("{}{}/{}", root, dir, name));
    });
  std::sort(out.libraries.begin(), out.libraries.end());
  for (const char* program : {"nvidia-smi", "nvidia-debugdump"})
    for (const char* dir : {"/usr/bin/", "/usr/local/nvidia/bin/", "/usr/local/bin/"})
      if (const std::string path = root + dir + program; file_exists(path)) {
        out.programs.push_back(path);
        break;
      }
  for (const char* socket : {"/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket"})
    if (file_exists(root + socket))
      out.sockets.push_back(root + socket);
  for (const char* device : {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools",
                             "/dev/nvidia-modeset", "/dev/kfd"})
    if (file_exists(root + device))
      out.devices.push_back(root + device);
  return out;
}

Json make_cdi(const std::vector<GpuInfo>& gpus, const DriverFiles& driver) {
  const auto mounted = [](const std::string& source, const std::string& target,
                          std::initializer_list<const char*> more) {
    Json options = Json::array();
    for (const char* option : more)
      options.push(option);
    return Json::object(
        {{"hostPath", source}, {"containerPath", target}, {"options", std::move(options)}});
  };
  Json devices = Json::array(), all_nodes = Json::array(), all_env = Json::array();
  for (const GpuInfo& gpu : gpus) {
    Json nodes = Json::array();
    for (const std::string& file : gpu.device_files)
      if (file_exists(file)) {
        nodes.push(device_node(file));
        all_nodes.push(device_node(file));
      }
    Json env = Json::array();
    env.push(fmt::format("BILLOW_GPU_{}={}", gpu.index, gpu.uuid));
    all_env.push(fmt::format("BILLOW_GPU_{}={}", gpu.index, gpu.uuid));
    const Json edits = Json::object({{"env", std::move(env)}, {"deviceNodes", std::move(nodes)}});
    devices.push(Json::object({{"name", std::to_string(gpu.index)}, {"containerEdits", edits}}));
    if (!gpu.uuid.empty())
      devices.push(Json::object({{"name", gpu.uuid}, {"containerEdits", edits}}));
  }
  // A device without edits would make the whole description invalid.
  if (!gpus.empty())
    devices.push(Json::object(
        {{"name", "all"},
         {"containerEdits",
          Json::object({{"env", std::move(all_env)}, {"deviceNodes", std::move(all_nodes)}})}}));
  Json nodes = Json::array(), mounts = Json::array(), env = Json::array();
  for (const std::string& device : driver.devices)
    nodes.push(device_node(device));
  for (const std::string& library : driver.libraries)
    mounts.push(mounted(library, fmt::format("{}/{}", driver_dir, base_name(library)),
                        {"ro", "nosuid", "nodev", "bind"}));
  for (const std::string& program : driver.programs)
    mounts.push(
        mounted(program, "/usr/bin/" + base_name(program), {"ro", "nosuid", "nodev", "bind"}));
  for (const std::string& socket : driver.sockets)
    mounts.push(mounted(socket, socket, {"ro", "nosuid", "nodev", "noexec", "bind"}));
  // If NVIDIA's own hook is installed too, it must leave this container alone.
  env.push("NVIDIA_VISIBLE_DEVICES=void");
  if (!driver.libraries.empty())
    env.push(fmt::format("LD_LIBRARY_PATH={}", driver_dir));
  return Json::object({{"cdiVersion", "0.5.0"},
                       {"kind", cdi_kind},
                       {"devices", std::move(devices)},
                       {"containerEdits", Json::object({{"env", std::move(env)},
                                                        {"deviceNodes", std::move(nodes)},
                                                        {"mounts", std::move(mounts)}})}});
}

namespace {

void add_edits(const Json& edits, Plan& plan) {
  for (const Json& entry : edits["env"].items()) {
    const std::string_view text = entry.str_or("");
    // Extends the image's value instead of replacing it.
    if (text.starts_with("LD_LIBRARY_PATH="))
      plan.library_dirs.emplace_back(text.substr(16));
    else
      plan.env.emplace_back(text);
  }
  for (const Json& node : edits["deviceNodes"].items()) {
    std::string path(node["path"].str_or(""));
    if (std::find(plan.devices.begin(), plan.devices.end(), path) == plan.devices.end())
      plan.devices.push_back(std::move(path));
  }
  for (const Json& m : edits["mounts"].items())
    plan.mounts.push_back({.source = std::string(m["hostPath"].str_or("")),
                           .target = std::string(m["containerPath"].str_or("")),
                           .read_only = true,
                           .optional = true});
}

}  // namespace

Status add_devices(const Json& cdi, const std::vector<std::string>& names, Plan& plan) {
  if (names.empty())
    return {};
  for (const std::string& name : names) {
    const auto& devices = cdi["devices"].items();
    const auto found = std::find_if(devices.begin(), devices.end(),
                                    [&](const Json& d) { return d["name"].str_or("") == name; });
    if (found == devices.end())
      return fail(Code::not_found,
                  fmt::format("this node has no device {}={}", cdi["kind"].str_or(cdi_kind), name));
    add_edits((*found)["containerEdits"], plan);
  }
  add_edits(cdi["containerEdits"], plan);
  return {};
}

}  // namespace billow::container
