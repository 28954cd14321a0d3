// What a machine keeps of the head that it has joined, and signed questions to that head.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "net/http/blocking_client.h"
#include "net/http/certificate_keeper.h"

namespace billow::client {

struct Joined {
  std::string head, node, fingerprint;
  std::map<std::string, std::string> labels;
  std::string client_cert, client_key;  // the operator's; empty: the head issues a certificate
  std::vector<std::string> used;        // hashes of the tokens that this machine joined with
};

// `dir` is the node's directory in all of these.
net::CertificatePlace certificate_of(const Joined& joined, const std::string& dir);
Result<Joined> read_joined(const std::string& dir);
Status write_joined(const std::string& dir, const Joined& joined, const std::string& authority);

// Sends a request that is signed with a key of this machine to the head that answers.
Result<net::Response> ask_signed(const Joined& joined,
                                 const std::string& dir,
                                 const std::string& key_file,
                                 net::ClientRequest request);

// Whether the head knows the credential that is kept here.
enum class Known { yes, no, given_back, unanswered };

Known ask_head(const Joined& joined, const std::string& dir);

}  // namespace billow::client
