// Amazon EC2 without a network: credentials files, error kinds, the launch request, and the list.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <array>

#include "base/crypto.h"
#include "base/file.h"
#include "base/rng.h"
#include "pool/boot.h"
#include "pool/catalogue_offers.h"
#include "pool/ec2/ec2_pool.h"
#include "pool/ec2/pace.h"
#include "pool/kinds.h"

namespace billow::pool::ec2 {
namespace {

Order order(std::uint32_t nodes = 1) {
  Order o;
  o.machine.name = "aws-7";
  o.machine.nodes = nodes;
  MachineOffer offer;
  offer.instance = "p5.48xlarge";
  offer.region = "us-east-1";
  offer.zone = "us-east-1a";
  offer.gpu_type = "H100";
  offer.gpus = 8;
  o.machine.offer = offer;
  o.head_url = "https://head:7070";
  o.token = "bwj_secret.fingerprint";
  o.authority = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n";
  o.program_sha256 = std::string(64, 'a');
  return o;
}

Launch launch(const Order& of) {
  Launch l;
  l.order = &of;
  l.installation = "1a2b";
  l.pool = "aws";
  l.subnet = "subnet-a";
  l.group = "sg-1";
  l.user_data = boot_script(of, {}, {});
  l.image = {"ami-1", "/dev/sda1"};
  return l;
}

std::string get(const Parameters& parameters, std::string_view name) {
  for (const auto& [key, value] : parameters)
    if (key == name)
      return value;
  return "(none)";
}

TEST(Ec2, ALaunchCarriesItsTagsAndEndsWithItsMachine) {
  const Order o = order(4);
  const Parameters p = run_instances(launch(o));
  EXPECT_EQ(get(p, "MinCount"), "4") << "a gang comes all or none";
  EXPECT_EQ(get(p, "MaxCount"), "4");
  EXPECT_EQ(get(p, "InstanceInitiatedShutdownBehavior"), "terminate");
  EXPECT_EQ(get(p, "MetadataOptions.HttpTokens"), "required");
  EXPECT_EQ(get(p, "BlockDeviceMapping.1.Ebs.DeleteOnTermination"), "true");
  EXPECT_EQ(get(p, "TagSpecification.1.ResourceType"), "instance");
  EXPECT_EQ(get(p, "TagSpecification.1.Tag.2.Key"), "billow:installation");
  EXPECT_EQ(get(p, "TagSpecification.1.Tag.2.Value"), "1a2b");
  EXPECT_EQ(get(p, "TagSpecification.1.Tag.4.Value"), "aws-7");
  EXPECT_EQ(get(p, "InstanceMarketOptions.MarketType"), "(none)");
  EXPECT_EQ(run_instances(launch(o)), p) << "a repeated order has the same bytes";
}

TEST(Ec2, SpotAndReservedCapacityAreAskedForAsSuch) {
  Order o = order();
  o.machine.offer->spot = true;
  const Parameters spot = run_instances(launch(o));
  EXPECT_EQ(get(spot, "InstanceMarketOptions.MarketType"), "spot");
  EXPECT_EQ(get(spot, "InstanceMarketOptions.SpotOptions.SpotInstanceType"), "one-time")
      << "a persistent request would start machines nobody ordered";
  EXPECT_EQ(get(spot, "TagSpecification.4.ResourceType"), "spot-instances-request");
  o.machine.offer->spot = false;
  o.machine.offer->reservation = "block:cr-1";
  const Parameters block = run_instances(launch(o));
  EXPECT_EQ(get(block, "InstanceMarketOptions.MarketType"), "capacity-block");
  EXPECT_EQ(get(block,
                "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"),
            "cr-1");
}

TEST(Ec2, TheTokenDiffersBySubnetAndFits) {
  EXPECT_EQ(client_token("i", "aws-1", "s-a").size(), 64u);
  EXPECT_NE(client_token("i", "aws-1", "s-a"), client_token("i", "aws-1", "s-b"))
      << "EC2 compares tokens per zone";
  EXPECT_NE(client_token("i", "aws-1", "s-a"), client_token("j", "aws-1", "s-a"));
}

TEST(Ec2, TheStartUpScriptFitsAndHoldsNoCloudCredential) {
  const std::string script = boot_script(order(), {}, {});
  EXPECT_LT(script.size(), user_data_bytes_max / 2);
  EXPECT_EQ(script.find("AKI"), std::string::npos);
  EXPECT_NE(script.find("--label zone=us-east-1a"), std::string::npos) << script;
  EXPECT_NE(script.find(std::string(64, 'a')), std::string::npos) << "the program is pinned";
}

TEST(Ec2, ErrorsAreToldApartByCodeAndNotByStatus) {
  const auto kind = [](int status, const char* code, const char* message = "") {
    return kind_of({status, code, message});
  };
  EXPECT_EQ(kind(500, "InsufficientInstanceCapacity"), RefusalKind::capacity);
  EXPECT_EQ(kind(400, "InsufficientFreeAddressesInSubnet"), RefusalKind::capacity);
  EXPECT_EQ(kind(400, "VcpuLimitExceeded"), RefusalKind::quota);
  EXPECT_EQ(kind(400, "MaxSpotInstanceCountExceeded"), RefusalKind::quota);
  EXPECT_EQ(kind(400, "Unsupported"), RefusalKind::not_offered);
  EXPECT_EQ(kind(400, "InvalidParameterValue", "Invalid value for instance type"),
            RefusalKind::not_offered);
  EXPECT_EQ(kind(400, "InvalidParameterValue", "volume"), RefusalKind::settings);
  EXPECT_EQ(kind(403, "UnauthorizedOperation"), RefusalKind::settings);
  EXPECT_EQ(kind(500, "InternalError"), RefusalKind::no_answer);
  EXPECT_EQ(kind(503, "RequestLimitExceeded"), RefusalKind::no_answer);
  EXPECT_EQ(kind(0, "", "timed out"), RefusalKind::no_answer);
  EXPECT_EQ(kind(502, ""), RefusalKind::no_answer);
}

TEST(Ec2, ErrorsAreFoundInEveryForm) {
  const auto ec2 = read_answer(
      400,
      "<Response><Errors><Error><Code>A</Code><Message>m</Message></Error></Errors></Response>");
  ASSERT_FALSE(ec2);
  EXPECT_EQ(ec2.error().text(), "A: m");
  const auto sts = read_answer(403, "<ErrorResponse><Error><Code>B</Code></Error></ErrorResponse>");
  ASSERT_FALSE(sts);
  EXPECT_EQ(sts.error().code, "B");
  EXPECT_FALSE(read_answer(200, "not xml"));
  EXPECT_FALSE(read_answer(502, "<html></html>"));
  EXPECT_TRUE(read_answer(200, "<DescribeInstancesResponse/>"));
}

std::string instance(const char* id, const char* state, const char* machine, const char* why = "") {
  return std::string("<item><instancesSet><item><instanceId>") + id +
         "</instanceId><instanceState><name>" + state +
         "</name></instanceState><stateReason><code>" + why +
         "</code></stateReason><tagSet><item><key>billow:machine</key><value>" + machine +
         "</value></item></tagSet></item></instancesSet></item>";
}

TEST(Ec2, TheListIsGroupedByMachineAndCarriesReasons) {
  const auto page =
      net::parse_xml("<R><reservationSet>" + instance("i-1", "running", "aws-1") +
                     instance("i-2", "pending", "aws-1") +
                     instance("i-3", "terminated", "aws-2", "Server.InsufficientInstanceCapacity") +
                     instance("i-4", "terminated", "aws-3", "Client.UserInitiatedShutdown") +
                     "</reservationSet></R>");
  ASSERT_TRUE(page);
  SeenMachines seen;
  read_instances(*page, "us-east-1", seen);
  ASSERT_EQ(seen.size(), 3u);
  const MachineSighting gang = sighting_of("aws-1", seen["aws-1"]);
  EXPECT_EQ(gang.external, "us-east-1/i-1,i-2");
  EXPECT_FALSE(gang.ended);
  const MachineSighting dead = sighting_of("aws-2", seen["aws-2"]);
  EXPECT_TRUE(dead.ended);
  EXPECT_EQ(dead.failed, RefusalKind::capacity);
  const MachineSighting ended = sighting_of("aws-3", seen["aws-3"]);
  EXPECT_TRUE(ended.ended);
  EXPECT_FALSE(ended.failed) << "somebody ended it";
}

TEST(Ec2, TheListTellsFromWhenToWhenAMachineIsBilled) {
  const auto tagged = [](const char* times) {
    return std::string("<item><instancesSet><item><instanceId>i-1</instanceId>") + times +
           "<tagSet><item><key>billow:machine</key><value>aws-1</value></item></tagSet></item>"
           "</instancesSet></item>";
  };
  const auto seen_in = [&](const char* times) {
    const auto page =
        net::parse_xml("<R><reservationSet>" + tagged(times) + "</reservationSet></R>");
    SeenMachines seen;
    read_instances(*page, "us-east-1", seen);
    return sighting_of("aws-1", seen["aws-1"]);
  };
  const MachineSighting runs = seen_in(
      "<instanceState><name>running</name></instanceState>"
      "<launchTime>2026-11-16T12:30:40.000Z</launchTime><reason></reason>");
  EXPECT_EQ(runs.billed_from.ns, 1'794'832'240'000'000'000);
  EXPECT_FALSE(runs.billed_to);
  const MachineSighting ended = seen_in(
      "<instanceState><name>terminated</name></instanceState>"
      "<launchTime>2026-11-16T12:30:40.000Z</launchTime>"
      "<reason>User initiated (2026-11-16 12:31:55 GMT)</reason>");
  EXPECT_EQ((ended.billed_to - ended.billed_from).ns, seconds(75).ns);
  const MachineSighting odd = seen_in(
      "<instanceState><name>terminated</name></instanceState><launchTime>soon</launchTime>"
      "<reason>Server.SpotInstanceTermination 7</reason>");
  EXPECT_FALSE(odd.billed_from);
  EXPECT_FALSE(odd.billed_to);
}

TEST(Ec2, TheNodesOfAGangAreClose) {
  Order o = order(2);
  o.machine.offer->fabric = "efa";
  Launch l = launch(o);
  l.placement_group = "billow-1a2b-us-east-1a";
  const Parameters p = run_instances(l);
  EXPECT_EQ(get(p, "Placement.GroupName"), "billow-1a2b-us-east-1a");
  EXPECT_EQ(get(p, "NetworkInterface.1.InterfaceType"), "efa");
  const Order alone = order();
  EXPECT_EQ(get(run_instances(launch(alone)), "Placement.GroupName"), "(none)");
  EXPECT_EQ(get(run_instances(launch(alone)), "NetworkInterface.1.InterfaceType"), "(none)");
}

TEST(Ec2, EveryAdapterOfATypeIsAskedForWhereItHasNoPublicAddress) {
  Order o = order(2);
  o.machine.offer->fabric = "efa";
  Launch l = launch(o);
  const auto type = net::parse_xml(
      "<item><instanceStorageInfo><totalSizeInGB>30400</totalSizeInGB></instanceStorageInfo>"
      "<networkInfo><maximumNetworkCards>32</maximumNetworkCards><efaSupported>true</efaSupported>"
      "<efaInfo><maximumEfaInterfaces>32</maximumEfaInterfaces></efaInfo></networkInfo></item>");
  ASSERT_TRUE(type);
  l.facts = read_type_facts(*type);
  EXPECT_EQ(l.facts.local_disk_gb, 30400);
  EXPECT_EQ(get(run_instances(l), "NetworkInterface.2.InterfaceType"), "(none)")
      << "EC2 gives no public address to a machine with several interfaces";
  l.public_address = false;
  const Parameters p = run_instances(l);
  EXPECT_EQ(get(p, "NetworkInterface.1.InterfaceType"), "efa");
  EXPECT_EQ(get(p, "NetworkInterface.32.InterfaceType"), "efa-only");
  EXPECT_EQ(get(p, "NetworkInterface.32.NetworkCardIndex"), "31");
  EXPECT_EQ(get(p, "NetworkInterface.32.DeleteOnTermination"), "true");
  EXPECT_EQ(get(p, "NetworkInterface.33.InterfaceType"), "(none)");
  l.facts = {.network_cards = 17, .efa_adapters = 16};
  const Parameters other = run_instances(l);
  EXPECT_EQ(get(other, "NetworkInterface.1.InterfaceType"), "(none)") << "its first card has none";
  EXPECT_EQ(get(other, "NetworkInterface.17.InterfaceType"), "efa-only");
}

TEST(Ec2Disks, OfTwoWithOneNameTheOneInUseKeepsItElseTheOldest) {
  const auto disk = [](const char* name, const char* volume, std::int64_t made, bool attached) {
    MachineSighting out;
    out.name = name;
    out.external = fmt::format("us-east-1/{}", volume);
    out.billed_from = {made};
    out.attached = attached;
    return out;
  };
  std::vector<MachineSighting> disks = {
      disk("a-cache-1", "vol-2", 20, false), disk("a-cache-1", "vol-1", 10, false),
      disk("a-cache-2", "vol-3", 30, false), disk("a-cache-2", "vol-4", 40, true)};
  name_surplus(disks);
  std::map<std::string, std::string> names;
  for (const MachineSighting& one : disks)
    names[one.external.substr(10)] = one.name;
  const std::map<std::string, std::string> wanted = {{"vol-1", "a-cache-1"},
                                                     {"vol-2", "a-cache-1-surplus-vol-2"},
                                                     {"vol-3", "a-cache-2-surplus-vol-3"},
                                                     {"vol-4", "a-cache-2"}};
  EXPECT_EQ(names, wanted);
}

TEST(Ec2Disks, TheMembersOfAGangAreInTheSameOrderInEveryList) {
  MachineSighting gang;
  gang.external = "us-east-1/i-2,i-1";
  EXPECT_EQ(member_of(gang, 0).external, "us-east-1/i-1");
  EXPECT_EQ(member_of(gang, 1).external, "us-east-1/i-2");
  gang.external = "us-east-1/i-1";
  EXPECT_EQ(member_of(gang, 1).external, "us-east-1/i-1");
}

TEST(Boot, ADiskHoldsTheSystemBesideTheJobs) {
  Machine machine;
  EXPECT_EQ(boot_disk_gib(machine, 200), 200);
  machine.disk_mib = 500 << 10;
  EXPECT_EQ(boot_disk_gib(machine, 200), 600);
  machine.disk_mib = 1;
  EXPECT_EQ(boot_disk_gib(machine, 200), 200);
}

struct HandClock final : Clock {
  SteadyTime now{seconds(100).ns};
  SteadyTime steady() const override { return now; }
  WallTime wall() const override { return {}; }
};

// What EC2 allows, counted as EC2 counts: five orders at once, then two a second.
TEST(Ec2Pace, AHundredOrdersAtOnceKeepToTheLimits) {
  HandClock clock;
  Pace pace(clock);
  std::vector<Duration> waits;
  for (int i = 0; i < 100; ++i)
    waits.push_back(pace.take("us-east-1", "RunInstances"));
  EXPECT_EQ(waits[4].ns, 0);
  for (int i = 5; i < 100; ++i)
    EXPECT_GE(waits[i].ns, seconds(i - 4).ns / 2) << i;
  EXPECT_LT(waits[99].ns, seconds(60).ns);
}

TEST(Ec2Pace, RegionsAndKindsOfRequestsDoNotWaitForEachOther) {
  HandClock clock;
  Pace pace(clock);
  for (int i = 0; i < 50; ++i)
    (void)pace.take("us-east-1", "RunInstances");
  EXPECT_EQ(pace.take("us-west-2", "RunInstances").ns, 0);
  EXPECT_EQ(pace.take("us-east-1", "DescribeInstances").ns, 0);
  EXPECT_EQ(pace.take("us-east-1", "TerminateInstances").ns, 0);
  clock.now = clock.now + seconds(60);
  EXPECT_EQ(pace.take("us-east-1", "RunInstances").ns, 0) << "the bucket fills again";
}

TEST(Ec2Credentials, ProfilesAreReadAsAmazonsToolsDo) {
  const Profiles p = parse_profiles(
      "[default]\nregion = eu-west-1\n[profile gpu]\nrole_arn = arn:aws:iam::1:role/r\n"
      "source_profile=default\n# comment\n[sso-session x]\nsso_region = us-east-1\n"
      "[profile nested]\ns3 =\n  max_concurrent_requests = 2\nregion=us-west-2\n",
      "[default]\naws_access_key_id = AKID\naws_secret_access_key = s=ecret\n");
  EXPECT_EQ(p.at("default").at("region"), "eu-west-1");
  EXPECT_EQ(p.at("default").at("aws_secret_access_key"), "s=ecret");
  EXPECT_EQ(p.at("gpu").at("source_profile"), "default");
  EXPECT_EQ(p.at("nested").at("region"), "us-west-2");
  EXPECT_FALSE(p.at("nested").contains("max_concurrent_requests"));
  EXPECT_FALSE(p.contains("x"));
  EXPECT_EQ(p.at("sso-session x").at("sso_region"), "us-east-1");
}

struct Home {
  std::string dir;
  std::map<std::string, std::string> variables;
  std::vector<Role> assumed;

  Home() {
    char name[] = "/tmp/ec2-home-XXXXXX";
    dir = ::mkdtemp(name);
    variables["HOME"] = dir;
    variables["AWS_EC2_METADATA_DISABLED"] = "true";
    (void)make_directories(dir + "/.aws", 0700);
  }
  ~Home() { (void)remove_tree(dir); }
  void write(const std::string& file, const std::string& text) const {
    (void)write_file_atomic(dir + "/.aws/" + file, text, 0600);
  }
  Result<Credentials> get(const std::string& profile = {}) {
    CredentialChain chain(
        {.profile = profile,
         .assume_role = [this](const Credentials& with, const Role& role) -> Result<Credentials> {
           assumed.push_back(role);
           return Credentials{"ASIA-of-" + with.access_key, "s", "t", {}, ""};
         },
         .variable =
             [this](const char* name) {
               return variables[name];
             }});
    return chain.get();
  }
};

TEST(Ec2Credentials, TheChainIsFollowedInAmazonsOrder) {
  Home home;
  EXPECT_FALSE(home.get());
  home.write("credentials",
             "[default]\naws_access_key_id=FILE\naws_secret_access_key=s\n"
             "[other]\naws_access_key_id=OTHER\naws_secret_access_key=s\n");
  EXPECT_EQ(home.get()->access_key, "FILE");
  home.variables["AWS_PROFILE"] = "other";
  EXPECT_EQ(home.get()->access_key, "OTHER");
  home.variables["AWS_ACCESS_KEY_ID"] = "ENV";
  home.variables["AWS_SECRET_ACCESS_KEY"] = "s";
  EXPECT_EQ(home.get()->access_key, "ENV");
  EXPECT_EQ(home.get()->source, "environment");
  EXPECT_EQ(home.get("other")->access_key, "OTHER") << "the pool's own profile wins";
  EXPECT_FALSE(home.get("missing")) << "and is never replaced by another identity";
}

TEST(Ec2Credentials, RolesAreAssumedAlongTheirSourcesAndLoopsEnd) {
  Home home;
  home.write("credentials", "[base]\naws_access_key_id=BASE\naws_secret_access_key=s\n");
  home.write("config",
             "[profile a]\nrole_arn=A\nsource_profile=b\nexternal_id=x\n[profile b]\nrole_arn=B\n"
             "source_profile=base\n[profile loop]\nrole_arn=L\nsource_profile=pool\n"
             "[profile pool]\nrole_arn=P\nsource_profile=loop\n");
  const auto found = home.get("a");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->access_key, "ASIA-of-ASIA-of-BASE");
  ASSERT_EQ(home.assumed.size(), 2u);
  EXPECT_EQ(home.assumed[0].arn, "B");
  EXPECT_EQ(home.assumed[1].external_id, "x");
  EXPECT_EQ(home.assumed[0].duration_s, 3600);
  const auto loop = home.get("loop");
  ASSERT_FALSE(loop);
  EXPECT_NE(loop.error().message.find("loop"), std::string::npos);
}

TEST(Ec2Credentials, ARoleIsAssumedForAsLongAsItsProfileSays) {
  Home home;
  home.write("credentials", "[base]\naws_access_key_id=BASE\naws_secret_access_key=s\n");
  home.write("config",
             "[profile day]\nrole_arn=A\nsource_profile=base\nduration_seconds=43200\n"
             "[profile week]\nrole_arn=A\nsource_profile=base\nduration_seconds=604800\n");
  ASSERT_TRUE(home.get("day"));
  EXPECT_EQ(home.assumed.back().duration_s, 43200);
  const auto week = home.get("week");
  ASSERT_FALSE(week) << "not for an hour instead";
  EXPECT_EQ(week.error().message,
            "AWS profile week: duration_seconds: 604800 is out of range: 900 to 43200");
}

// What is not understood must not be taken for the default: "no" for a public address gave one.
TEST(Ec2Pool, OptionsThatAreNotUnderstoodAreRefused) {
  for (const auto& [option, value, why] : std::vector<std::array<std::string, 3>>{
           {"public_address", "no", "public_address must be true or false, not no"},
           {"gang_caches", "yes", "gang_caches must be true or false, not yes"},
           {"volume_gib", "1T", "volume_gib, in GiB without a unit: not a whole number: \"1T\""},
           {"volume_gib", "4", "volume_gib, in GiB without a unit: 4 is out of range: 8 to 16384"},
           {"endpoint", "localhost", "endpoint \"localhost\" is not a URL"}}) {
    billow::Pool pool;
    pool.kind = "ec2";
    pool.options = {{"regions", "us-east-1"}, {option, value}};
    const Status checked = complete_new_pool(pool);
    ASSERT_FALSE(checked) << option;
    EXPECT_EQ(checked.error().message, why);
  }
}

TEST(Ec2Credentials, ACredentialProcessIsRunAndItsSecretIsNotShown) {
  Home home;
  home.write("config",
             "[profile good]\ncredential_process = echo "
             "'{\"Version\":1,\"AccessKeyId\":\"P\",\"SecretAccessKey\":\"s\"}'\n"
             "[profile bad]\ncredential_process = echo '{\"SecretAccessKey\":\"hush\"}'\n");
  EXPECT_EQ(home.get("good")->access_key, "P");
  const auto bad = home.get("bad");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message.find("hush"), std::string::npos);
}

TEST(Ec2, CredentialsThatEndAfterAllTimesHaveNotExpired) {
  const auto read = parse_credentials(
      R"({"AccessKeyId":"a","SecretAccessKey":"b","Expiration":"9999-12-31T23:59:59Z"})", "test");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->expires.ns, INT64_MAX);
}

// Answers of other people's servers and files of users: whatever bytes they hold, reading ends.
TEST(Ec2, NoInputBreaksTheReaders) {
  const std::vector<std::string> seeds = {
      "[default]\nregion = eu-west-1\n[profile a]\nrole_arn = x\n",
      "{\"AccessKeyId\":\"a\",\"SecretAccessKey\":\"b\",\"Expiration\":\"2026-01-01T00:00:00Z\"}",
      "<R><reservationSet>" + instance("i-1", "running", "aws-1") + "</reservationSet></R>",
      "<Response><Errors><Error><Code>A</Code></Error></Errors></Response>"};
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Rng rng(seed);
    std::string text = seeds[rng.below(seeds.size())];
    for (std::uint64_t i = rng.below(8); i > 0 && !text.empty(); --i) {
      const std::size_t at = rng.below(text.size());
      if (rng.chance(0.3))
        text.resize(at);
      else
        text[at] = static_cast<char>(rng.below(256));
    }
    (void)parse_profiles(text, text);
    (void)parse_credentials(text, "test");
    const auto answer = read_answer(rng.chance(0.5) ? 200 : 500, text);
    SeenMachines seen;
    if (answer)
      read_instances(*answer, "r", seen);
    for (const auto& [machine, instances] : seen)
      (void)sighting_of(machine, instances);
  }
}

TEST(Ec2Offers, TheCatalogueHasThemUnderTheNamesOfAgents) {
  const auto offers = catalogue_offers({.provider = "aws", .regions = {"us-east-1"}, .spot = true});
  const auto h100 = std::find_if(offers.begin(), offers.end(), [](const MachineOffer& o) {
    return o.instance == "p5.48xlarge" && !o.spot;
  });
  ASSERT_NE(h100, offers.end());
  EXPECT_EQ(h100->gpu_type, "H100");
  EXPECT_EQ(h100->gpus, 8);
  EXPECT_GT(h100->price.nano_usd_per_s, 1'000'000);
  EXPECT_TRUE(h100->priced_at);
  for (const MachineOffer& o : offers)
    EXPECT_EQ(o.region, "us-east-1");
}

TEST(Ec2, TheKindNeedsRegionsAndKnowsItsOptions) {
  billow::Pool pool;
  pool.kind = "ec2";
  EXPECT_FALSE(complete_new_pool(pool)) << "no region";
  pool.options["regions"] = "us-east-1";
  ASSERT_TRUE(complete_new_pool(pool));
  EXPECT_TRUE(pool.capabilities->from_offers);
  pool.options["password"] = "x";
  EXPECT_FALSE(complete_new_pool(pool));
}

}  // namespace
}  // namespace billow::pool::ec2
