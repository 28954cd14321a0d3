// The library's life cycle, properties of the cards, and their links.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "gpu/sim/handles.h"

using namespace billow;
using namespace billow::sim;
using namespace billow::nvml;

namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int number_of(const std::string& version) {  // "12.5" → 12050, as CUDA counts
  int major = 0, minor = 0;
  std::sscanf(version.c_str(), "%d.%d", &major, &minor);
  return major * 1000 + minor * 10;
}

}  // namespace

Return billowSimConfigure(const char* spec, const char* state_dir) {
  Library& library = Library::instance();
  const std::lock_guard lock(library.mutex);
  const std::string text = spec ? spec : "", state = state_dir ? state_dir : "";
  if (library.users > 0) {
    if (text == library.spec_given && state == library.state_given)
      return success;
    library.last_error = "this process already simulates other GPUs: close that backend first";
    return error_in_use;
  }
  if (!text.empty()) {
    if (const auto parsed = parse_sim_spec(text); !parsed) {
      library.last_error = parsed.error().message;
      return error_invalid_argument;
    }
  }
  library.spec_given = text;
  library.state_given = state;
  return success;
}

Return billowSimLastError(char* text, unsigned length) {
  Library& library = Library::instance();
  const std::lock_guard lock(library.mutex);
  if (!text || length == 0)
    return error_invalid_argument;
  const std::string message = library.last_error.substr(0, length - 1);
  library.last_error.clear();
  return copy_text(message, text, length);
}

Return billowSimDeviceVendor(Device device, unsigned* vendor) {
  Call call = enter(device, true);
  if (!call && call.code != error_gpu_is_lost)
    return call.code;
  if (!vendor)
    return error_invalid_argument;
  *vendor = static_cast<unsigned>(call.card->spec.facts->vendor);
  return success;
}

Return nvmlInit_v2() {
  Library& library = Library::instance();
  const std::lock_guard lock(library.mutex);
  if (library.users++ > 0)
    return success;
  const std::string text =
      library.spec_given.empty() ? from_environment("BILLOW_SIM") : library.spec_given;
  const std::string state =
      library.state_given.empty() ? from_environment("BILLOW_SIM_STATE") : library.state_given;
  auto spec = text.empty()
                  ? fail(Code::invalid, "BILLOW_SIM says nothing: set it to something like 8xH100")
                  : parse_sim_spec(text);
  auto simulator =
      spec ? Simulator::create(std::move(*spec), state) : std::unexpected(spec.error());
  if (!simulator) {
    library.last_error = simulator.error().message;
    if (!simulator.error().hint.empty())
      library.last_error += " (" + simulator.error().hint + ")";
    library.users = 0;
    return error_unknown;
  }
  library.simulator = std::move(*simulator);
  return success;
}

Return nvmlShutdown() {
  Library& library = Library::instance();
  const std::lock_guard lock(library.mutex);
  if (library.users == 0)
    return error_uninitialized;
  if (--library.users == 0)
    library.forget_all();
  return success;
}

const char* nvmlErrorString(Return code) {
  switch (code) {
    case success:
      return "success";
    case error_uninitialized:
      return "the library is not initialised";
    case error_invalid_argument:
      return "an argument is invalid";
    case error_not_supported:
      return "not supported by this card";
    case error_no_permission:
      return "no permission";
    case error_not_found:
      return "not found";
    case error_insufficient_size:
      return "the buffer is too small";
    case error_driver_not_loaded:
      return "the driver is not loaded";
    case error_timeout:
      return "timed out";
    case error_gpu_is_lost:
      return "the GPU has fallen off the bus";
    case error_in_use:
      return "in use";
    case error_insufficient_resources:
      return "no space for it on the card";
    case error_argument_version:
      return "the version of a structure is not known";
    default:
      return "unknown error";
  }
}

Return nvmlSystemGetDriverVersion(char* version, unsigned length) {
  Call call = enter();
  return call ? copy_text(call.simulator().spec().driver_version, version, length) : call.code;
}

Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
  Call call = enter();
  if (!call)
    return call.code;
  if (!version)
    return error_invalid_argument;
  *version = number_of(call.simulator().spec().runtime_version);
  return success;
}

Return nvmlDeviceGetCount_v2(unsigned* count) {
  Call call = enter();
  if (!call)
    return call.code;
  if (!count)
    return error_invalid_argument;
  *count = static_cast<unsigned>(call.simulator().cards().size());
  return success;
}

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  Call call = enter();
  if (!call)
    return call.code;
  if (!device || index >= call.simulator().cards().size())
    return error_invalid_argument;
  if (call.simulator().cards()[index].lost)
    return error_gpu_is_lost;
  *device = call.library.card_handle(index);
  return success;
}

Return nvmlDeviceGetName(Device device, char* name, unsigned length) {
  Call call = enter(device, true);
  if (!call)
    return call.code;
  std::string text = call.card->spec.facts->model;
  if (call.instance)
    text += " MIG " + profile_of(call).name;
  return copy_text(text, name, length);
}

Return nvmlDeviceGetUUID(Device device, char* uuid, unsigned length) {
  Call call = enter(device, true);
  if (!call)
    return call.code;
  if (!call.instance)
    return copy_text(call.card->uuid, uuid, length);
  // The UUID of a MIG device: the card's, with the instance in its last part.
  std::string text = "MIG-" + call.card->uuid.substr(4);
  text.replace(text.size() - 4, 4,
               fmt::format("{:04x}", 0xA000 + call.instance->id * 16 + call.instance->profile));
  return copy_text(text, uuid, length);
}

Return nvmlDeviceGetMinorNumber(Device device, unsigned* minor) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!minor)
    return error_invalid_argument;
  *minor = call.card->index;
  return success;
}

Return nvmlDeviceGetNumaNodeId(Device device, unsigned* node) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!node)
    return error_invalid_argument;
  *node = call.card->numa;
  return success;
}

Return nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!major || !minor)
    return error_invalid_argument;
  const char* text = call.card->spec.facts->capability;
  if (std::strncmp(text, "gfx", 3) == 0) {
    *major = static_cast<int>(std::strtol(text + 3, nullptr, 16));
    *minor = 0;
    return success;
  }
  char* dot = nullptr;
  *major = static_cast<int>(std::strtol(text, &dot, 10));
  *minor = *dot == '.' ? std::atoi(dot + 1) : 0;
  return success;
}

namespace {
void fill_pci(const SimCard& card, PciInfo& pci) {
  pci = {};
  std::snprintf(pci.bus_id, sizeof pci.bus_id, "%s", card.bus_id.c_str());
  std::snprintf(pci.bus_id_legacy, sizeof pci.bus_id_legacy, "%s", card.bus_id.c_str() + 4);
  std::sscanf(card.bus_id.c_str(), "%x:%x:%x", &pci.domain, &pci.bus, &pci.device);
}
}  // namespace

Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* pci) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!pci)
    return error_invalid_argument;
  fill_pci(*call.card, *pci);
  return success;
}

Return nvmlDeviceGetTopologyCommonAncestor(Device a, Device b, unsigned* level) {
  SimCard* first = nullptr;
  {
    Call call = enter(a);
    if (!call)
      return call.code;
    first = call.card;
  }
  Call call = enter(b);
  if (!call)
    return call.code;
  if (!level)
    return error_invalid_argument;
  *level = call.simulator().pcie_level(*first, *call.card);
  return success;
}

Return nvmlDeviceGetP2PStatus(Device a, Device b, unsigned capability, unsigned* status) {
  SimCard* first = nullptr;
  {
    Call call = enter(a);
    if (!call)
      return call.code;
    first = call.card;
  }
  Call call = enter(b);
  if (!call)
    return call.code;
  if (!status)
    return error_invalid_argument;
  const bool joined = call.simulator().fabric(*first, *call.card);
  *status = joined || (capability == p2p_read && first->numa == call.card->numa)
                ? p2p_ok
                : p2p_not_supported;
  return success;
}

Return nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned* active) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!active)
    return error_invalid_argument;
  const unsigned links = call.card->spec.facts->fabric_links;
  if (links == 0)
    return error_not_supported;
  if (link >= links)
    return error_invalid_argument;
  *active = link < call.card->links.size() ? 1 : 0;
  return success;
}

Return nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned* type) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!type)
    return error_invalid_argument;
  if (link >= call.card->links.size())
    return error_not_supported;
  *type = call.card->links[link] == call.card->index ? nvlink_to_switch : nvlink_to_gpu;
  return success;
}

Return nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo* pci) {
  Call call = enter(device);
  if (!call)
    return call.code;
  if (!pci)
    return error_invalid_argument;
  if (link >= call.card->links.size())
    return error_not_supported;
  const unsigned remote = call.card->links[link];
  if (remote == call.card->index) {
    *pci = {};
    std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:05:00.0");  // the switch
  } else {
    fill_pci(call.simulator().cards()[remote], *pci);
  }
  return success;
}
