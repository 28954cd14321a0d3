// The variables of a gang's network: only on nodes that have it.
#include "core/control/renting/fabric_variables.h"

#include <gtest/gtest.h>

namespace billow::control {
namespace {

TEST(FabricVariables, AreThoseOfTheNodesNetwork) {
  EXPECT_EQ(fabric_variables({{"fabric", "efa"}}).at("FI_PROVIDER"), "efa");
  EXPECT_EQ(fabric_variables({{"fabric", "tcpx"}}).at("NCCL_GPUDIRECTTCPX_CTRL_DEV"), "eth0");
  EXPECT_EQ(fabric_variables({{"fabric", "tcpxo"}}).at("NCCL_FASTRAK_CTRL_DEV"), "eth0");
  EXPECT_EQ(fabric_variables({{"fabric", "infiniband"}, {"cloud", "azure"}})
                .at("NCCL_IB_PCI_RELAXED_ORDERING"),
            "1");
  EXPECT_TRUE(fabric_variables({{"fabric", "infiniband"}}).empty()) << "a cluster of one's own";
  EXPECT_TRUE(fabric_variables({{"fabric", "tcp"}}).empty());
  EXPECT_TRUE(fabric_variables({}).empty());
}

}  // namespace
}  // namespace billow::control
