// The version of the agent protocol that this process speaks: the newest it knows, unless a test
// asks for another. Upgrade tests run one program as its own predecessor and successor.
#pragma once

namespace billow::wire {

// `asked` is the value of BILLOW_TEST_PROTOCOL, or null.
int spoken_protocol(const char* asked);

}  // namespace billow::wire
