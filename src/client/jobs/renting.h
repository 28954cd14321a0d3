// What a submission would rent, said or asked before money is spent.
#pragma once

#include <string>

#include "client/frame/client.h"
#include "client/frame/command.h"

namespace billow::client {

// "no free machine here: renting g6.xlarge in us-east-1a (on demand, $0.80/h) from aws"
std::string rent_line(const Json& rents);

// On a terminal, a person decides before a machine is rented (unless --yes is given). An error:
// the person said no.
Status may_rent(const Parsed& parsed, Client& client, const std::string& submission);

}  // namespace billow::client
