// The head on a small machine of a cloud: machines must reach it, and a laptop behind a router
// cannot be reached. On AWS the program does it (server/cloud_head.cpp); for others it shows the
// steps.
#include <fmt/format.h>

#include "base/text.h"
#include "client/fleet/cloud_kinds.h"
#include "client/frame/console.h"

namespace billow::client {
namespace {

constexpr OptionSpec head_options[] = {
    {"allow", 0, "CIDR",
     "network that may reach the head's port, e.g. your own address (repeatable; required)", true},
    {"yes", 'y', nullptr, "create it (default: only show what would be created, and its price)"},
    {"remove", 0, nullptr,
     "terminate the head's machine and release its address and security group"},
    {"delete-disk", 0, nullptr,
     "with --remove: also delete the disk with the head's state (default: keep it)"},
    {"region", 0, "REGION", "region (default: the region of your environment or profile)"},
    {"instance-profile", 0, "NAME",
     "IAM instance profile with which the head rents machines (policy: billow cloud policy aws)"},
    {"instance-type", 0, "TYPE", "type of the machine (default t3.small; on ARM: t4g.small)"},
    {"disk", 0, "SIZE", "size of the disk with the head's state (default 20GB)"},
    {"subnet", 0, "SUBNET", "subnet of the machine (default: a default subnet)"},
    {"image", 0, "AMI", "image with Linux, glibc 2.36, systemd and Python (default: Ubuntu 24.04)"},
    {"profile", 0, "NAME", "profile in ~/.aws"},
    {"data", 0, "DIR", "data directory of the head to move (default: the one that commands use)",
     false, Completes::directory},
    {"installation", 0, "ID", "which head, if the region has several"},
    {"show", 0, nullptr, "show the steps to do it by hand"},
    {"endpoint", 0, "URL", "URL of all AWS services, for proxies and tests"},
};

void show_steps(const std::string& cloud, const std::string& kind) {
  const bool aws = kind == "ec2", google = kind == "gce";
  print(fmt::format(
      "Run the head on a small machine of {0}, where rented machines can reach it:\n\n"
      "1. Create the rights for it: billow cloud policy {0} > policy, and attach them to {1}.\n"
      "2. Start a machine with Linux and these rights, at least 2 GB of memory and a fixed\n"
      "   address, for example {2}. Open TCP port 7070 to your own address and to your machines.\n"
      "3. Copy billow there, and the head's data if you have any:\n"
      "     billow store backup head.backup && scp -r head.backup HOST:\n"
      "     ssh HOST billow store restore head.backup\n"
      "4. On that machine: billow up --listen 0.0.0.0:7070 --public-url https://HOST:7070 "
      "--no-agent\n"
      "                    billow cloud add {0}{3}\n"
      "                    billow token create laptop\n"
      "5. Here: billow login https://HOST:7070, and paste the token.\n",
      cloud,
      aws      ? "an instance profile"
      : google ? "a service account"
               : "a managed identity",
      aws      ? "t3.small with an Elastic IP"
      : google ? "e2-small with a static address"
               : "Standard_B1ms with a static address",
      google ? "" : " --region REGION"));
}

int cloud_head(const Parsed& p) {
  const auto cloud = one_operand(p, "cloud head", "cloud");
  if (!cloud)
    return report_usage(cloud.error());
  const std::string kind = kind_of_cloud(cloud_name(*cloud));
  if (kind == "rest")
    return report_usage({Code::invalid,
                         fmt::format("{} rents no small machines for a head", *cloud),
                         "use aws, gcp or azure, or any server with a public address"});
  if (kind == "ec2" && !p.has("show"))
    return move_head_to_aws(p);
  for (const char* name : {"yes", "remove"})
    if (p.has(name))
      return report_usage({Code::invalid, fmt::format("--{} is for aws", name),
                           fmt::format("billow cloud head {} shows the steps", *cloud)});
  show_steps(cloud_name(*cloud), kind);
  return 0;
}

}  // namespace

std::string cloud_name(std::string_view text) {
  const std::string name = lower(text);
  if (name == "amazon" || name == "ec2")
    return "aws";
  if (name == "google" || name == "gce")
    return "gcp";
  return name == "microsoft" ? "azure" : name;
}

std::string kind_of_cloud(const std::string& cloud) {
  if (cloud == "aws")
    return "ec2";
  if (cloud == "gcp")
    return "gce";
  return cloud == "azure" ? "azure" : "rest";
}

void add_cloud_head_command(CommandTable& table) {
  table.push_back(
      {.name = "cloud head",
       .summary = "move the head to a small cloud machine that rented machines can reach",
       .example = "billow cloud head aws --allow 203.0.113.7/32\n"
                  "billow cloud head aws --allow 203.0.113.7/32 --instance-profile billow --yes\n"
                  "billow cloud head aws --remove\n"
                  "billow cloud head gcp",
       .run = cloud_head,
       .usage = "aws|gcp|azure",
       .details = "On AWS, Billow creates the machine with your credentials, copies this program "
                  "and the data of this machine's head there, stops the head here and logs you in "
                  "to the new one. Without --yes it only shows what would be created. If the head "
                  "has a machine already, --allow changes who reaches it.\n"
                  "On Google and Azure it shows the steps.",
       .options = {head_options},
       .operands = Operands::some,
       .group = "machines",
       .talks_to_head = false,
       .prints_json = false});
}

}  // namespace billow::client
