#include "core/control/renting/fabric_variables.h"

#include <string_view>

namespace billow::control {

std::map<std::string, std::string> fabric_variables(
    const std::map<std::string, std::string>& labels) {
  const auto label = [&](const char* name) -> std::string_view {
    const auto found = labels.find(name);
    return found == labels.end() ? std::string_view{} : found->second;
  };
  const std::string_view fabric = label("fabric");
  // Amazon: NCCL's plugin uses libfabric, which must choose the adapter and not TCP.
  if (fabric == "efa")
    return {{"FI_PROVIDER", "efa"},
            {"FI_EFA_USE_DEVICE_RDMA", "1"},
            {"RDMAV_FORK_SAFE", "1"},
            {"NCCL_SOCKET_IFNAME", "^lo,docker,veth"}};
  // Google: the GPUs' own cards come after the machine's first.
  if (fabric == "tcpx")
    return {{"NCCL_NET", "GPUDirectTCPX_v7"},
            {"NCCL_GPUDIRECTTCPX_CTRL_DEV", "eth0"},
            {"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "eth1,eth2,eth3,eth4"},
            {"NCCL_SOCKET_IFNAME", "eth0"},
            {"NCCL_CROSS_NIC", "0"}};
  if (fabric == "tcpxo")
    return {{"NCCL_NET", "FasTrak"},
            {"NCCL_FASTRAK_CTRL_DEV", "eth0"},
            {"NCCL_FASTRAK_IFNAME", "eth1,eth2,eth3,eth4,eth5,eth6,eth7,eth8"},
            {"NCCL_SOCKET_IFNAME", "eth0"},
            {"NCCL_CROSS_NIC", "0"}};
  // Azure's machines are virtual: without relaxed ordering their cards reach half their speed. The
  // start of a job goes over the ordinary network.
  if (fabric == "infiniband" && label("cloud") == "azure")
    return {{"NCCL_IB_PCI_RELAXED_ORDERING", "1"},
            {"UCX_IB_PCI_RELAXED_ORDERING", "on"},
            {"NCCL_SOCKET_IFNAME", "eth0"},
            {"UCX_NET_DEVICES", "eth0"}};
  return {};
}

}  // namespace billow::control
