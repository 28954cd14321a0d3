// The catalogue that ships: every GPU and instance people name resolves to the right hardware, and
// no price is a lie.
#include "core/ledger/catalogue.h"

#include <gtest/gtest.h>

namespace billow {
namespace {

const Catalogue& shipped() {
  static const Catalogue c = Catalogue::embedded();
  return c;
}

TEST(Catalogue, ResolvesEveryGpuOfTheField) {
  struct Row {
    const char* name;
    const char* is;
    double memory_gb;
  };
  for (auto& [name, is, gb] :
       {Row{"A100", "A100-40GB-SXM", 40}, Row{"A100-80GB", "A100-80GB-SXM", 80},
        Row{"H100", "H100-SXM", 80}, Row{"H200", "H200-SXM", 141}, Row{"B100", "B100", 180},
        Row{"B200", "B200-SXM", 180}, Row{"GB200", "GB200", 186}, Row{"A10G", "A10G", 22.5},
        Row{"L4", "L4", 22.5}, Row{"MI300X", "MI300X", 192}, Row{"L40S", "L40S", 45},
        Row{"T4", "T4", 15}, Row{"V100", "V100-16GB", 15.8}, Row{"h100_pcie", "H100-PCIe", 80},
        Row{"b200_sxm", "B200-SXM", 180}, Row{"NVIDIA A100-SXM4-80GB", "A100-80GB-SXM", 80},
        Row{"NVIDIA H100 80GB HBM3", "H100-SXM", 80},
        Row{"Tesla V100-SXM2-16GB", "V100-16GB", 15.8}}) {
    auto g = shipped().gpu(name);
    ASSERT_TRUE(g) << name << ": " << g.error().message;
    EXPECT_EQ((*g)->name, is) << name;
    ASSERT_TRUE((*g)->memory_mib) << name;
    EXPECT_NEAR(static_cast<double>(*(*g)->memory_mib) / 1024, gb, gb * 0.04) << name;
    EXPECT_TRUE((*g)->bandwidth_gb_s && *(*g)->bandwidth_gb_s >= 300) << name;
    EXPECT_FALSE((*g)->source.empty());
  }
  auto none = shipped().gpu("H1000");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().hint.find("did you mean"), std::string::npos);
}

TEST(Catalogue, ResolvesEveryInstanceOfTheField) {
  struct Row {
    const char* name;
    const char* gpu;
    int gpus;
    Fabric fabric;
    bool priced;
    bool is_gpu;
  };
  for (auto& row : {Row{"p4d.24xlarge", "A100-40GB-SXM", 8, Fabric::nvswitch, true, true},
                    Row{"p4de.24xlarge", "A100-80GB-SXM", 8, Fabric::nvswitch, true, true},
                    Row{"p5.48xlarge", "H100-SXM", 8, Fabric::nvswitch, true, true},
                    Row{"p5e.48xlarge", "H200-SXM", 8, Fabric::nvswitch, true, true},
                    Row{"p6-b200.48xlarge", "B200-SXM", 8, Fabric::nvswitch, true, true},
                    Row{"g5", "A10G", 1, Fabric::single, true, true},
                    Row{"inf2", "Inferentia2", 1, Fabric::single, true, false},
                    Row{"trn1", "Trainium", 1, Fabric::single, true, false},
                    Row{"a3-highgpu-8g", "H100-SXM", 8, Fabric::nvswitch, true, true},
                    Row{"a3-megagpu-8g", "H100-SXM", 8, Fabric::nvswitch, true, true},
                    Row{"a3-ultragpu-8g", "H200-SXM", 8, Fabric::nvswitch, true, true},
                    Row{"a4-highgpu-8g", "B200-SXM", 8, Fabric::nvswitch, true, true},
                    Row{"g2", "L4", 1, Fabric::single, true, true},
                    Row{"ND H100 v5", "H100-SXM", 8, Fabric::nvswitch, true, true},
                    Row{"ND H200 v5", "H200-SXM", 8, Fabric::nvswitch, false, true},
                    Row{"ND GB200 v6", "GB200", 4, Fabric::nvl72, false, true}}) {
    auto found = shipped().instances_named(row.name);
    ASSERT_TRUE(found) << row.name << ": " << found.error().message;
    auto& i = *found->front();
    auto& g = shipped().gpus()[i.gpu];
    EXPECT_EQ(g.name, row.gpu) << row.name;
    EXPECT_EQ(g.is_gpu, row.is_gpu) << row.name;
    EXPECT_EQ(i.gpus, row.gpus) << row.name;
    EXPECT_EQ(i.fabric, row.fabric) << row.name << " " << fabric_name(i.fabric);
    EXPECT_EQ(!i.prices.empty(), row.priced) << row.name;
  }
  EXPECT_FALSE(shipped().instances_named("p99.48xlarge"));
}

TEST(Catalogue, NoShippedPriceIsZeroAndSpotIsBelowOnDemand) {
  std::size_t offers = 0, spot = 0, committed = 0;
  for (auto& offer : shipped().offers({.gpus_only = false})) {
    ++offers;
    auto& p = *offer.price;
    EXPECT_EQ(p.date.size(), 10u);
    if (p.on_demand_h) {
      EXPECT_GT(p.on_demand_h->value, 0);
    }
    if (p.spot_h) {
      ++spot;
      EXPECT_GT(p.spot_h->value, 0);
      if (p.on_demand_h) {
        EXPECT_LT(*p.spot_h, *p.on_demand_h) << offer.instance->name;
      }
    }
    committed += p.committed_1y_h.has_value();
  }
  EXPECT_GT(offers, 2000u);
  EXPECT_GT(spot, 500u);
  EXPECT_GT(committed, 100u);
}

TEST(Catalogue, FiltersByProviderRegionGpuAndCount) {
  auto eight = shipped().offers(
      {.providers = {"aws"}, .regions = {"us-east-1"}, .gpu = "H100", .gpus_min = 8});
  ASSERT_EQ(eight.size(), 1u);
  EXPECT_EQ(eight[0].instance->name, "p5.48xlarge");
  EXPECT_NEAR(usd(*eight[0].price->on_demand_h), 55.04, 0.001);
  EXPECT_TRUE(shipped().offers({.gpu = "B100"}).empty());
}

TEST(Catalogue, UpdateTakesGoodLinesAndNamesBadOnes) {
  auto c = Catalogue::embedded();
  auto report = c.update(
      "provider,instance,region,on_demand_usd_h,spot_usd_h,date,gpu,gpus\n"
      "aws,p5.48xlarge,us-east-1,50.00,20.00,2026-10-01,,\n"
      "aws,p5.48xlarge,us-east-2,50.00,50.00,2026-10-01,,\n"
      "aws,p5.48xlarge,us-west-2,0,,2026-10-01,,\n"
      "acme,box,any,12,,2026-10-01,H100,8\n"
      "acme,other,any,12,,2026-10-01,,\n"
      "acme,third,any,12,,yesterday,L4,1\n"
      "acme,fourth,any,12,,2026-02-30,L4,1\n");
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->accepted, 2);
  ASSERT_EQ(report->refused.size(), 5u);
  EXPECT_NE(report->refused[0].find("line 3: spot"), std::string::npos) << report->refused[0];
  ASSERT_EQ(report->changed.size(), 1u);
  EXPECT_EQ(usd(*c.offers({.regions = {"us-east-1"}, .gpu = "H100", .gpus_min = 8})[0]
                     .price->on_demand_h),
            50.0);
  ASSERT_TRUE(c.instances_named("box"));
  const auto quoted = c.update(
      "Provider, Instance ,region,on_demand_usd_h,date,gpu,gpus,note\n"
      "# as the provider writes it\n"
      "\"acme\",\"eight, in a box\",any,12,2026-10-01,H100,8,\"not \"\"spot\"\"\"\n");
  ASSERT_TRUE(quoted) << quoted.error().message;
  EXPECT_TRUE(c.instances_named("eight, in a box"));
  EXPECT_FALSE(c.update("nonsense\n1,2,3\n"));
  EXPECT_FALSE(c.update(""));
}

TEST(Catalogue, RefusesBrokenTables) {
  EXPECT_FALSE(Catalogue::parse({"A|gpu|1\n", ""}));
  EXPECT_FALSE(Catalogue::parse({"", "p 2026-01-01 1 - - - any\n"}));
  EXPECT_FALSE(Catalogue::parse({"", "i aws x NoSuchGpu 8 1 1 pcie eth:1\n"}));
}

TEST(Catalogue, TellsThePricesAge) {
  EXPECT_EQ(price_age_days("1970-01-11", WallTime{0} + hours(24 * 20)), 10);
  EXPECT_FALSE(price_age_days("1970-13-45", WallTime{0}));
  EXPECT_FALSE(price_age_days("soon", WallTime{0}));
}

}  // namespace
}  // namespace billow
