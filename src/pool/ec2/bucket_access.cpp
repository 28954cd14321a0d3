#include "pool/ec2/bucket_access.h"

#include "s3/objects.h"

namespace billow::pool::ec2 {

Result<s3::Access> bucket_access(Wire& wire, const Variables& variable) {
  s3::Access out = s3::access_of(variable);
  const auto found = wire.credentials().get();
  if (!found)
    return pass(found.error());
  out.access_key = found->access_key;
  out.secret_key = found->secret_key;
  out.session_token = found->session_token;
  if (variable("AWS_REGION").empty() && variable("AWS_DEFAULT_REGION").empty())
    if (const std::string region = wire.credentials().region(); !region.empty())
      out.region = region;
  return out;
}

}  // namespace billow::pool::ec2
