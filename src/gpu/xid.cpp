// The meaning of an XID for the job and for the card. The numbers and causes are NVIDIA's ("XID
// Errors", GPU deployment and management documentation); the classes are ours: `hardware` takes the
// card out of service, `application` does not.
#include "gpu/nvml_backend.h"

namespace billow {

XidMeaning xid_meaning(std::int64_t xid) {
  using enum FaultClass;
  switch (xid) {
    case 8:
      return {application, "the GPU stopped processing"};
    case 13:
      return {application, "graphics engine exception: usually an illegal access by the program"};
    case 31:
      return {application, "memory page fault: usually an illegal address in the program"};
    case 32:
      return {hardware, "invalid or corrupted push buffer stream"};
    case 43:
      return {application, "the program's channel was reset after an error of its own"};
    case 45:
      return {informational, "channels were cleaned up after the program ended"};
    case 48:
      return {hardware, "double-bit memory error"};
    case 61:
    case 62:
      return {hardware, "internal micro-controller halt"};
    case 63:
      return {informational, "a memory row was remapped or a page retired"};
    case 64:
      return {hardware, "a memory row could not be remapped"};
    case 68:
      return {application, "video processor exception"};
    case 69:
      return {application, "graphics engine class error"};
    case 74:
      return {hardware, "NVLink error"};
    case 79:
      return {hardware, "the GPU has fallen off the bus"};
    case 92:
      return {hardware, "high rate of corrected memory errors"};
    case 94:
      return {application, "contained memory error: the program that met it was ended"};
    case 95:
      return {hardware, "uncontained memory error: reset the GPU"};
    case 109:
      return {driver, "context switch timed out"};
    case 110:
      return {hardware, "security fault: reset the GPU"};
    case 119:
    case 120:
      return {driver, "the GPU system processor did not answer: reset the GPU"};
    case 121:
      return {hardware, "corrected error on the chip-to-chip link"};
    case 140:
      return {hardware, "unrecovered memory error"};
    case 143:
      return {hardware, "GPU initialisation failed"};
    case 144:
    case 145:
    case 146:
    case 147:
    case 148:
    case 149:
    case 150:
      return {hardware, "NVLink error"};
    case 154:
      return {hardware, "a recovery action is needed: see nvidia-smi -q"};
    default:
      return {hardware, "an error this version of Billow has no description of"};
  }
}

}  // namespace billow
