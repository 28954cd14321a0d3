// The small machine on which `billow cloud head aws` runs the head: an instance, a disk that keeps
// the state and outlives it, a fixed address, and a security group that opens one port. All carry
// the tags `billow:installation` and `billow:head`, and not those of rented machines, so that no
// list of a pool contains them and nothing sweeps them.
//
// Each step looks first and then acts, so a lost answer creates nothing twice.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pool/ec2/ec2_pool.h"

namespace billow::pool::ec2 {

struct HeadSettings {
  std::string region, installation;
  std::string subnet;            // empty: a default one
  std::string image;             // empty: Ubuntu
  std::string instance;          // "t3.small"
  std::string instance_profile;  // with which the head rents machines; empty: none
  std::int64_t disk_gib = 20;
  std::uint16_t port = 7070;
  std::vector<std::string> allow;  // networks that reach the port: "203.0.113.7/32"
};

// What exists of one head.
struct HeadParts {
  struct Instance {
    std::string id, zone, state;
  };
  struct Disk {
    std::string id, zone, state;
  };
  struct Address {
    std::string id, ip;
  };
  struct Group {
    std::string id;
    std::vector<std::string> allow;
  };
  std::string installation;
  std::vector<Instance> instances;
  std::vector<Disk> disks;
  std::vector<Address> addresses;
  std::vector<Group> groups;
};

// Where a new one will be.
struct HeadPlace {
  std::string zone, subnet, vpc;
  Image image;
};

class HeadMachine {
 public:
  HeadMachine(Wire::Options wire, HeadSettings settings)
      : wire_(std::move(wire)), settings_(std::move(settings)) {}

  // Whose credentials these are: "arn:aws:…, found in profile default".
  Result<std::string> identity();
  // All heads of the region that carry our tags, also those that are only half created.
  Result<std::vector<HeadParts>> find();
  // `zone`: where it must be, because its disk is there; empty: anywhere.
  Result<HeadPlace> place(const std::string& zone);

  Result<HeadParts::Disk> make_disk(const std::string& zone);
  Result<HeadParts::Address> make_address();
  Result<std::string> make_group(const std::string& vpc);
  // Opens the port to `allow` only.
  Status set_rules(const HeadParts::Group& group);
  Result<std::string> make_instance(const HeadPlace& place,
                                    const std::string& group,
                                    const std::string& user_data);
  // Gives the machine its disk and its address as soon as it runs.
  Status connect(const std::string& instance,
                 const HeadParts::Disk& disk,
                 const HeadParts::Address& address);
  Status remove(const HeadParts& parts, bool with_disk);

 private:
  // Repeats a step that may be repeated until it has an answer.
  Answer<net::XmlElement> sure(const std::string& action, const Parameters& parameters);
  Answer<net::XmlElement> once(const std::string& action, const Parameters& parameters);
  // The pages of a list of what carries our tags.
  Answer<std::vector<net::XmlElement>> listed(const char* action);
  Result<HeadParts> ours();  // of this installation
  Answer<std::string> image_id();
  Status wait_for(const std::string& instance, const std::string& state);

  Wire wire_;
  HeadSettings settings_;
  std::string nonce_;  // of the client tokens of this command
};

}  // namespace billow::pool::ec2
