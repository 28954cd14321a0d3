// Which version of the agent protocol this process speaks: the newest it knows, unless
// BILLOW_TEST_PROTOCOL names another. Tests of upgrades run one program as its own predecessor and
// successor with it.
#pragma once

namespace billow::wire {

int spoken_protocol();

}  // namespace billow::wire
