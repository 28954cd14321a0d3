// Whose account the credentials open, which rights are missing and which quotas are zero.
#include <fmt/format.h>

#include <array>

#include "base/text.h"
#include "pool/ec2/ec2_pool.h"

namespace billow::pool::ec2 {
namespace {

struct QuotaName {
  const char* code;
  const char* text;
  bool spot;
};
constexpr std::array quota_names = {
    QuotaName{"L-417A185B", "on-demand P instances (A100, H100, H200, B200)", false},
    QuotaName{"L-DB2E81BA", "on-demand G and VT instances (T4, A10G, L4, L40S)", false},
    QuotaName{"L-C4BD4855", "spot P5 instances", true},
    QuotaName{"L-3819A6DF", "spot G and VT instances", true}};

}  // namespace

// A dry run that is allowed is answered with the error DryRunOperation.
void Ec2Pool::check_region(const std::string& region, std::vector<std::string>& problems) {
  const auto problem = [&](const std::string& right, const ApiError& error) {
    if (error.code == "UnauthorizedOperation" || error.code == "AccessDenied" ||
        error.code == "AccessDeniedException")
      problems.push_back(
          fmt::format("{}: the right {} is missing; paste the policy of `billow "
                      "cloud policy aws` into IAM",
                      region, right));
    else
      problems.push_back(fmt::format("{}: {}: {}", region, right, error.text()));
  };
  const auto dry = [&](const std::string& action, Parameters parameters) {
    parameters.emplace_back("DryRun", "true");
    const auto answer = wire_.ec2(region, action, std::move(parameters));
    if (!answer && answer.error().code != "DryRunOperation")
      problem("ec2:" + action, answer.error());
  };
  for (const char* action :
       {"DescribeInstances", "DescribeSubnets", "DescribeSecurityGroups", "DescribeImages",
        "DescribeInstanceTypeOfferings", "DescribeSpotPriceHistory"})
    dry(action, {});
  if (settings_.cache_gib > 0)
    dry("DescribeVolumes", {});
  const auto where = place(region);
  if (!where)
    return problem("ec2:CreateSecurityGroup", where.error());
  Order order;
  order.machine.name = settings_.name + "-1";
  const std::vector<MachineOffer>& known = settings_.offers;
  MachineOffer offer;
  offer.instance = known.empty() ? "g5.xlarge" : known.front().instance;
  offer.region = region;
  offer.zone = where->subnets.begin()->first;
  order.machine.offer = offer;
  order.head_url = "https://head";
  const auto launch = prepare(order);
  if (!launch)
    return problem("ssm:GetParameter", launch.error());
  dry("RunInstances", run_instances(*launch));
  if (settings_.cache_gib > 0)
    dry("CreateVolume", create_volume({.name = settings_.name + "-cache-1",
                                       .installation = options_.installation,
                                       .pool = settings_.name,
                                       .zone = offer.zone,
                                       .token = "check",
                                       .gib = settings_.cache_gib}));
}

void Ec2Pool::check_quotas(const std::string& region, std::vector<std::string>& problems) {
  for (const QuotaName& quota : quota_names) {
    if (quota.spot && !settings_.spot)
      continue;
    const auto answer =
        wire_.json("servicequotas", region, "ServiceQuotasV20190624.GetServiceQuota",
                   Json::object({{"ServiceCode", "ec2"}, {"QuotaCode", quota.code}}));
    if (!answer) {
      // The default applies, which this interface does not tell.
      if (answer.error().code != "NoSuchResourceException")
        problems.push_back(fmt::format("{}: the quota of {} is not known: {}", region, quota.text,
                                       answer.error().text()));
      continue;
    }
    const double value = (*answer)["Quota"]["Value"].double_or(0);
    if (value < 4)
      problems.push_back(
          fmt::format("{}: the quota of {} is {:.0f} vCPUs; ask for more: "
                      "https://{}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{}",
                      region, quota.text, value, region, quota.code));
  }
}

Result<Account> Ec2Pool::account() {
  const std::vector<std::string> all = regions();
  Account out;
  const Credentials credentials = BILLOW_TRY(wire_.credentials().get());
  out.source = credentials.source;
  const auto said = wire_.query("sts", all.front(), "GetCallerIdentity", {});
  if (!said)
    return pass(identity_error(said.error()));
  if (const net::XmlElement* identity = said->child("GetCallerIdentityResult")) {
    out.id = identity->child_text("Account");
    out.identity = identity->child_text("Arn");
  }
  for (const std::string& region : all) {
    check_region(region, out.problems);
    check_quotas(region, out.problems);
  }
  return out;
}

}  // namespace billow::pool::ec2
