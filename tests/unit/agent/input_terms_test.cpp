// Which inputs are fetched for a job, with which credentials.
#include "agent/content/input_terms.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/file.h"
#include "core/wire/confined.h"

namespace billow::agent {
namespace {

wire::agent_v1::Start with_input() {
  wire::agent_v1::Start start;
  start.surroundings.inputs = {{"s3://bucket/key", "got"}};
  start.env = {{"AWS_ACCESS_KEY_ID", "id"}, {"AWS_SECRET_ACCESS_KEY", "replaced"}};
  start.secrets.push_back({});
  start.secrets.back().variable = "AWS_SECRET_ACCESS_KEY";
  start.secrets.back().value = base64("secret");
  return start;
}

s3::Access access(const char* id, const char* secret, const char* token = "") {
  s3::Access out;
  out.access_key = id;
  out.secret_key = secret;
  out.session_token = token;
  return out;
}

TEST(InputTerms, OnlyTheCredentialsOfTheOrderAreSent) {
  const InputTerms terms = input_terms(with_input());
  EXPECT_TRUE(are_submitted_keys(terms, access("id", "secret")));
  EXPECT_FALSE(are_submitted_keys(terms, access("id", "replaced")));
  EXPECT_FALSE(are_submitted_keys(terms, access("id", "secret", "what the job computed")));
  EXPECT_FALSE(are_submitted_keys(terms, access("idsecret", "")));
  EXPECT_FALSE(are_submitted_keys(terms, access("", "")));
  EXPECT_EQ(terms.keys.find("secret"), std::string::npos);
}

TEST(InputTerms, OnlyAJobInTheNodesNetworkGetsWhatTheNodeReaches) {
  auto start = with_input();
  EXPECT_TRUE(input_terms(start).node_network);
  start.surroundings.network = ContainerNetwork::internet;
  start.surroundings.allow = {"10.1.0.0/16"};
  EXPECT_FALSE(input_terms(start).node_network);
  EXPECT_EQ(input_terms(start).allow, start.surroundings.allow);
  start.surroundings.network = ContainerNetwork::none;
  EXPECT_FALSE(input_terms(start).node_network);
  EXPECT_TRUE(input_terms(start).allow.empty());
  start.surroundings.network = ContainerNetwork::host;
  start.unix_user = wire::strict_user_name;
  EXPECT_FALSE(input_terms(start).node_network);
}

TEST(InputTerms, AnEarlierVersionNotedNone) {
  EXPECT_FALSE(input_terms_in("{\"fenced\":false}").noted);
  EXPECT_FALSE(input_terms_in("").noted);
}

TEST(BroughtInputs, AreRememberedUntilAllAreThere) {
  std::string directory = "/tmp/billow-inputs-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::vector<std::string> wishes = {"s3://a/b\tone", "s3://a/c\ttwo"};
  const BroughtInputs brought(directory + "/7.inputs", wishes);
  EXPECT_FALSE(brought.all());
  ASSERT_TRUE(brought.add(wishes[0]));
  ASSERT_TRUE(brought.add(wishes[0])) << "a repeated one counts once";
  EXPECT_FALSE(brought.all());
  ASSERT_TRUE(brought.add(wishes[1]));
  EXPECT_TRUE(BroughtInputs(directory + "/7.inputs", wishes).all()) << "the next agent knows";
  ASSERT_TRUE(remove_tree(directory));
}

}  // namespace
}  // namespace billow::agent
