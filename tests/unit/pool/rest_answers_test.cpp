// What the shipped provider files make of each provider's answers, in the form and the words of its
// documentation.
#include <gtest/gtest.h>

#include "pool/rest/api.h"
#include "pool/rest/offers.h"
#include "pool/rest/providers.h"

namespace billow::pool::rest {
namespace {

struct Opened {
  Provider provider;
  std::unique_ptr<Api> api;
};

Opened open(const std::string& name) {
  auto provider = find_provider(name, "");
  EXPECT_TRUE(provider) << name;
  Opened out{std::move(*provider), nullptr};
  return out;
}

Answer answer(int status, std::string_view body) {
  auto parsed = parse_json(body);
  return {status, parsed ? *parsed : Json(body)};
}

RefusalKind kind(const std::string& provider, int status, std::string_view body) {
  Opened opened = open(provider);
  const auto api = Api::create(
      opened.provider, {.address = {}, .credential = [](const std::string&) -> Result<std::string> {
                          return std::string("k");
                        }});
  EXPECT_TRUE(api);
  const Answer given = answer(status, body);
  EXPECT_FALSE((*api)->succeeded(given)) << provider << " " << body;
  const Refusal refused = (*api)->refusal_of(given);
  EXPECT_NE(refused.message.find(fmt::format("(HTTP {})", status)), std::string::npos);
  return refused.kind;
}

using enum RefusalKind;

struct Case {
  const char* provider;
  int status;
  const char* body;
  RefusalKind kind;
};
const Case refusals[] = {
    {"lambda", 400,
     R"({"error":{"code":"instance-operations/launch/insufficient-capacity",)"
     R"("message":"Not enough capacity to fulfill launch request."}})",
     capacity},
    {"lambda", 400, R"({"error":{"code":"global/quota-exceeded","message":"Quota exceeded."}})",
     quota},
    {"lambda", 400,
     R"({"error":{"code":"global/invalid-parameters","message":"Invalid request data."}})",
     settings},
    {"lambda", 401,
     R"({"error":{"code":"global/invalid-api-key","message":"API key was invalid, )"
     R"(expired, or deleted."}})",
     settings},
    {"lambda", 503,
     R"({"error":{"code":"provider/internal-unavailable","message":"Provider unavailable"}})",
     no_answer},
    {"lambda", 429, "", no_answer},
    {"runpod", 400,
     R"({"detail":"There are no longer any instances available with the requested )"
     R"(specifications. Please refresh and try again.","status":400,"title":"Bad )"
     R"(Request"})",
     capacity},
    {"runpod", 422,
     R"({"detail":"Request validation failed.","errors":["$.gpu: )"
     R"(required"],"status":422,"title":"Unprocessable Entity"})",
     settings},
    {"runpod", 200,
     R"({"errors":[{"message":"There are no longer any instances )"
     R"(available"}],"detail":"There are no longer any instances available"})",
     capacity},
    {"crusoe", 400, R"({"code":"bad_request","message":"quota exceeded for a100.8x"})", quota},
    {"crusoe", 401, R"({"code":"401","message":"unauthorized"})", settings},
    {"digitalocean", 422,
     R"({"id":"unprocessable_entity","message":"Size is not available in this region."})",
     capacity},
    {"digitalocean", 422,
     R"({"id":"unprocessable_entity","message":"creating this/these droplet(s) will )"
     R"(exceed your droplet limit"})",
     quota},
    {"digitalocean", 422,
     R"({"id":"unprocessable_entity","message":"You specified an invalid image for )"
     R"(Droplet creation."})",
     not_offered},
    {"digitalocean", 401, R"({"id":"unauthorized","message":"Unable to authenticate you"})",
     settings},
    {"digitalocean", 500, R"({"id":"server_error","message":"Unexpected server-side error"})",
     no_answer},
    {"vultr", 400, R"({"error":"Plan is not available in the selected region.","status":400})",
     capacity},
    {"vultr", 401, R"({"error":"Invalid API token.","status":401})", settings},
    {"hyperstack", 400,
     R"({"status":false,"message":"Insufficient balance to create the )"
     R"(resource","error_reason":"bad_request"})",
     settings},
    {"hyperstack", 409,
     R"({"status":false,"message":"GPU is out of stock in this )"
     R"(region","error_reason":"conflict"})",
     capacity},
    {"hyperstack", 200, R"({"status":false,"message":"Flavor is not available"})", capacity},
    {"hyperstack", 500, R"({"message":"Internal Server Error"})", no_answer},
    {"verda", 400,
     R"({"code":"invalid_request","message":"Instance type is not available in this location"})",
     capacity},
    {"verda", 402, R"({"code":"insufficient_funds","message":"Add credits"})", settings},
    {"vast", 410,
     R"({"success":false,"error":"no_such_ask","msg":"error 410/3907: no_such_ask )"
     R"(Instance type 1234567 is no longer available.","ask_id":1234567})",
     capacity},
    {"vast", 404,
     R"({"success":false,"error":"invalid_args","msg":"error 404/3603: no_such_ask )"
     R"(Instance type by id 1234567 is not available."})",
     capacity},
    {"vast", 200,
     R"({"success":false,"error":"bid_too_low","msg":"bid is below the )"
     R"(minimum","new_contract":77})",
     capacity},
    {"vast", 429, R"({"detail":"API requests too frequent endpoint threshold=4.5"})", no_answer},
    {"vast", 401, R"({"success":false,"error":"auth_error","msg":"Invalid user key"})", settings},
    {"shadeform", 409, R"({"code":"OUT_OF_STOCK","message":"Instance type is out of stock"})",
     capacity},
    {"shadeform", 401, R"({"code":"UNAUTHORIZED","message":"invalid key"})", settings},
};

TEST(Refusals, AreToldApartByCodeTextAndStatus) {
  for (const Case& c : refusals)
    EXPECT_EQ(kind(c.provider, c.status, c.body), c.kind) << c.provider << " " << c.body;
}

TEST(Refusals, OfADeletionSayWhetherTheMachineIsGoneOrCannotGoYet) {
  const Opened verda = open("verda");
  const auto api = Api::create(verda.provider, {});
  ASSERT_TRUE(api);
  const DeleteCall& remove = verda.provider.remove;
  const Answer busy = answer(
      400, R"({"code":"invalid_request","message":"Can't discontinue a provisioning instance"})");
  EXPECT_TRUE((*api)->matches(remove.not_yet, busy));
  EXPECT_FALSE((*api)->matches(remove.gone, busy));
  const Answer gone = answer(400, R"({"code":"invalid_request","message":"Invalid instance id"})");
  EXPECT_TRUE((*api)->matches(remove.gone, gone));
}

// Nothing listens there: the order was not sent, so it can be repeated at once.
TEST(Requests, ThatNobodyAcceptedWereNotSent) {
  const Opened lambda = open("lambda");
  const auto credential = [](const std::string&) -> Result<std::string> {
    return std::string("key-0123456789");
  };
  const auto api =
      Api::create(lambda.provider, {.address = "http://127.0.0.1:1", .credential = credential});
  ASSERT_TRUE(api);
  const auto answer = (*api)->send(lambda.provider.lists[0].call, {}, Api::Use::create);
  ASSERT_FALSE(answer);
  EXPECT_FALSE(answer.error().sent) << answer.error().error.message;
  EXPECT_EQ(answer.error().error.message.find("key-0123456789"), std::string::npos);
  EXPECT_FALSE(Api::create(lambda.provider, {.address = "http://example.com/", .credential = {}}))
      << "a credential in plain over the network";
}

std::vector<MachineOffer> offers(const std::string& provider,
                                 std::string_view body,
                                 const OfferFacts& facts = {},
                                 std::size_t which = 0) {
  const Opened opened = open(provider);
  const OfferCall& call = opened.provider.offers.at(which);
  std::vector<Json> items;
  const Json document = *parse_json(body);
  for (const Json* item : call.list.items.all(document))
    items.push_back(*item);
  return offers_of(call, items, facts, WallTime{1});
}

double per_hour(const MachineOffer& offer) {
  return static_cast<double>(offer.price.nano_usd_per_s) * 3600 / 1e9;
}

TEST(Offers, OfLambdaAreOnePlaceEach) {
  const auto all = offers("lambda", R"j({"data":{
    "gpu_8x_h100_sxm5":{"instance_type":{"name":"gpu_8x_h100_sxm5","description":"8x H100",
      "gpu_description":"H100 (80 GB SXM5)","price_cents_per_hour":2392,
      "specs":{"vcpus":208,"memory_gib":1800,"storage_gib":22528,"gpus":8}},
      "regions_with_capacity_available":[{"name":"us-east-1","description":"Virginia"},
                                         {"name":"us-west-2","description":"Oregon"}]},
    "gpu_1x_a100":{"instance_type":{"name":"gpu_1x_a100","description":"1x A100",
      "gpu_description":"A100 (40 GB PCIe)","price_cents_per_hour":129,
      "specs":{"vcpus":30,"memory_gib":200,"storage_gib":512,"gpus":1}},
      "regions_with_capacity_available":[]}}})j");
  ASSERT_EQ(all.size(), 2u) << "a kind without a place cannot be ordered";
  EXPECT_EQ(all[0].instance, "gpu_8x_h100_sxm5");
  EXPECT_EQ(all[0].gpu_type, "H100");
  EXPECT_EQ(all[0].gpus, 8);
  EXPECT_EQ(all[0].cpus, 208);
  EXPECT_EQ(all[0].memory_mib, 1800 * 1024);
  EXPECT_EQ(all[0].region, "us-east-1");
  EXPECT_EQ(all[1].region, "us-west-2");
  EXPECT_NEAR(per_hour(all[0]), 23.92, 1e-4);
  EXPECT_FALSE(all[0].spot);
}

TEST(Offers, OfRunPodHaveSeveralSizesOfOneGpu) {
  const auto all = offers("runpod", R"({"gpus":[
    {"id":"NVIDIA H100 80GB HBM3","name":"H100 SXM","memory":80,"secure":true,"community":false,
     "price":{"secure":2.99,"community":0},"maxCount":{"secure":4,"community":0},
     "dataCenters":[{"id":"EU-RO-1","name":"EU-RO-1","availability":"LOW"},
                    {"id":"US-KS-2","name":"US-KS-2","availability":"NONE"}]},
    {"id":"NVIDIA GeForce RTX 4090","memory":24,"secure":false,"price":{"secure":0},
     "maxCount":{"secure":0}}]})");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[2].gpus, 4);
  EXPECT_EQ(all[2].gpu_type, "H100");
  EXPECT_EQ(all[2].region, "EU-RO-1");
  EXPECT_NEAR(per_hour(all[2]), 4 * 2.99, 1e-4);
}

TEST(Offers, OfDigitalOceanHaveGpusOnly) {
  const auto all = offers("digitalocean", R"({"sizes":[
    {"slug":"s-1vcpu-1gb","memory":1024,"vcpus":1,"price_hourly":0.00744,"regions":["nyc1"],
     "available":true},
    {"slug":"gpu-h100x8-640gb","memory":1966080,"vcpus":160,"price_hourly":23.92,
     "regions":["nyc2","tor1"],"available":true,"gpu_info":{"count":8,"model":"nvidia_h100"}},
    {"slug":"gpu-mi300x1-192gb","memory":245760,"vcpus":20,"price_hourly":1.99,
     "regions":["nyc2"],"available":false,"gpu_info":{"count":1,"model":"amd_mi300x"}}]})");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].gpu_type, "H100");
  EXPECT_EQ(all[1].region, "tor1");
}

TEST(Offers, OfVultrWithAPartOfAGpuAreLeftOut) {
  const auto all = offers("vultr", R"({"plans":[
    {"id":"vcg-a100-1c-6g-4vram","vcpu_count":1,"ram":6144,"monthly_cost":90,"type":"vcg",
     "gpu_vram_gb":4,"gpu_type":"NVIDIA_A100","locations":["ewr"]},
    {"id":"vcg-a100-12c-120g-80vram","vcpu_count":12,"ram":122880,"monthly_cost":1750,
     "type":"vcg","gpu_vram_gb":80,"gpu_type":"NVIDIA_A100","locations":["ewr","lax"]}]})");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].instance, "vcg-a100-12c-120g-80vram");
  EXPECT_EQ(all[0].gpus, 1);
  EXPECT_EQ(all[0].gpu_type, "A100-80");
  EXPECT_NEAR(per_hour(all[0]), 1750.0 / 730, 1e-4);
}

TEST(Offers, OfHyperstackTakeTheirPricesFromThePricebook) {
  OfferFacts facts;
  facts.gpu_price["h100-80g-pcie"] = 1.9;
  const auto all = offers("hyperstack", R"({"status":true,"data":[{"gpu":"H100-80G-PCIe",
    "region_name":"CANADA-1","flavors":[{"name":"n3-H100x2","gpu":"H100-80G-PCIe","gpu_count":2,
    "cpu":60,"ram":360.0,"region_name":"CANADA-1","stock_available":true},
    {"name":"n3-H100x8","gpu":"H100-80G-PCIe","gpu_count":8,"cpu":252,"ram":1440.0,
    "region_name":"CANADA-1","stock_available":false}]}]})",
                          facts);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].gpu_type, "H100-PCIe");
  EXPECT_EQ(all[0].region, "CANADA-1");
  EXPECT_NEAR(per_hour(all[0]), 3.8, 1e-4);
}

TEST(Offers, OfVerdaAreThereWhereTheAvailabilitySays) {
  OfferFacts facts;
  facts.places[{"1H100.80S.30V", false}] = {"FIN-01"};
  facts.places[{"1H100.80S.30V", true}] = {"FIN-03", "ICE-01"};
  const auto all = offers("verda", R"([{"instance_type":"1H100.80S.30V","price_per_hour":"2.19",
    "spot_price":"0.88","model":"H100","gpu":{"description":"1x H100","number_of_gpus":1},
    "gpu_memory":{"size_in_gigabytes":80},"cpu":{"number_of_cores":30},
    "memory":{"size_in_gigabytes":120}},
    {"instance_type":"CPU.4V","price_per_hour":"0.02","spot_price":"0.01","model":"",
     "gpu":{"number_of_gpus":0}}])",
                          facts);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].region, "FIN-01");
  EXPECT_FALSE(all[0].spot);
  EXPECT_TRUE(all[1].spot);
  EXPECT_NEAR(per_hour(all[1]), 0.88, 1e-4);
}

TEST(Offers, OfVastAndShadeformKeepWhatTheirOrdersNeed) {
  const auto vast = offers("vast", R"({"offers":[{"id":1234567,"gpu_name":"RTX 4090","num_gpus":2,
    "cpu_cores_effective":32.0,"cpu_ram":128000,"dph_total":0.71,"min_bid":0.3,
    "geolocation":"Sweden, SE"}]})");
  ASSERT_EQ(vast.size(), 1u);
  EXPECT_EQ(vast[0].instance, "1234567");
  EXPECT_EQ(vast[0].gpu_type, "RTX-4090");
  EXPECT_EQ(vast[0].region, "Sweden, SE");
  const auto shade = offers("shadeform", R"({"instance_types":[{"cloud":"hyperstack",
    "shade_instance_type":"A100_80Gx8","cloud_instance_type":"n2-A100x8","hourly_price":1080,
    "configuration":{"memory_in_gb":1440,"vcpus":252,"num_gpus":8,"gpu_type":"A100_80G",
    "vram_per_gpu_in_gb":80},"availability":[{"region":"canada-1","available":true},
    {"region":"us-1","available":false}]}]})");
  ASSERT_EQ(shade.size(), 1u);
  EXPECT_EQ(shade[0].instance, "hyperstack/A100_80Gx8");
  EXPECT_EQ(shade[0].gpu_type, "A100-80");
  EXPECT_NEAR(per_hour(shade[0]), 10.8, 1e-4);
}

}  // namespace
}  // namespace billow::pool::rest
