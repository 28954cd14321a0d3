// The credentials of buckets, as Amazon's tools find them, also by the role of this machine.
#pragma once

#include "pool/ec2/wire.h"
#include "s3/sign.h"

namespace billow::pool::ec2 {

Result<s3::Access> bucket_access(Wire& wire, const Variables& variable);

}  // namespace billow::pool::ec2
