/* Streams and events of the simulated driver. */
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "shim/sim/sim.h"

using namespace simcuda;

SIM_EXPORT CUresult cuStreamCreate(CUstream* out, unsigned) {
  SIM_ENTER(cuStreamCreate);
  SIM_NEED_CONTEXT();
  LOCKED();
  if (!out)
    return CUDA_INVALID_VALUE;
  auto* s = new Stream{current()};
  world().streams.push_back(s);
  *out = s;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  SIM_ENTER(cuStreamDestroy_v2);
  LOCKED();
  if (!stream || !std::erase(world().streams, stream))
    return CUDA_INVALID_HANDLE;
  delete static_cast<Stream*>(stream);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  SIM_READ_DONE();
  SIM_ENTER(cuStreamSynchronize);
  uint64_t at = 0;
  Meeting meeting;
  {
    LOCKED();
    Stream* s = stream_of(stream);
    if (!s)
      return CUDA_INVALID_HANDLE;
    if (s->capture) {
      world().violations++;
      s->invalidated = true;
      return CUDA_CAPTURE_UNSUPPORTED;
    }
    at = s->done_ns;
    meeting = s->meeting;
  }
  if (const CUresult met = wait_until_met(meeting); met != CUDA_OK)
    return met;
  sleep_until(at);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuStreamIsCapturing(CUstream stream, int* status) {
  LOCKED();
  Stream* s = stream_of(stream);
  if (!s || !status)
    return CUDA_INVALID_VALUE;
  *status = s->capture ? 1 : 0;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuStreamIsCapturing_ptsz(CUstream stream, int* status) {
  return cuStreamIsCapturing(stream, status);
}
SIM_EXPORT CUresult cuEventCreate(CUevent* out, unsigned) {
  SIM_ENTER(cuEventCreate);
  if (!out)
    return CUDA_INVALID_VALUE;
  *out = new Event;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuEventDestroy_v2(CUevent e) {
  SIM_ENTER(cuEventDestroy_v2);
  if (!e)
    return CUDA_INVALID_HANDLE;
  delete static_cast<Event*>(e);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) {
  SIM_ENTER(cuEventRecord);
  LOCKED();
  Stream* s = stream_of(stream);
  if (!event || !s)
    return CUDA_INVALID_HANDLE;
  static_cast<Event*>(event)->captured = s->capture != nullptr;
  static_cast<Event*>(event)->at_ns = std::max(s->done_ns.load(), now_ns());
  static_cast<Event*>(event)->meeting = s->meeting;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuEventRecord_ptsz(CUevent e, CUstream s) {
  return cuEventRecord(e, s);
}
SIM_EXPORT CUresult cuEventQuery(CUevent event) {
  SIM_READ_DONE();
  SIM_ENTER(cuEventQuery);
  auto* e = static_cast<Event*>(event);
  if (!e)
    return CUDA_INVALID_HANDLE;
  if (e->captured) {
    world().violations++;
    return CUDA_CAPTURE_UNSUPPORTED;
  }
  if (waits_for_ever(e->meeting))
    return CUDA_LAUNCH_FAILED;
  return now_ns() >= e->at_ns && all_met(e->meeting) ? CUDA_OK : CUDA_NOT_READY;
}
SIM_EXPORT CUresult cuEventSynchronize(CUevent event) {
  SIM_READ_DONE();
  SIM_ENTER(cuEventSynchronize);
  auto* e = static_cast<Event*>(event);
  if (!e)
    return CUDA_INVALID_HANDLE;
  if (e->captured) {
    world().violations++;
    return CUDA_CAPTURE_UNSUPPORTED;
  }
  if (const CUresult met = wait_until_met(e->meeting); met != CUDA_OK)
    return met;
  sleep_until(e->at_ns);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuEventElapsedTime(float* ms, CUevent a, CUevent b) {
  SIM_READ_DONE();
  if (!ms || !a || !b)
    return CUDA_INVALID_VALUE;
  *ms = static_cast<float>(static_cast<double>(static_cast<int64_t>(
                               static_cast<Event*>(b)->at_ns - static_cast<Event*>(a)->at_ns)) /
                           1e6);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuThreadExchangeStreamCaptureMode(int* mode) {
  if (!mode)
    return CUDA_INVALID_VALUE;
  *mode = 0;
  return CUDA_OK;
}
