/* Modules, launches, stream capture and graphs of the simulated driver. */
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "shim/hash.h"
#include "shim/sim/sim.h"

using namespace simcuda;

SIM_EXPORT CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  SIM_ENTER(cuModuleLoadData);
  if (!out || !image)
    return CUDA_INVALID_VALUE;
  *out = new Module{};
  return CUDA_OK;
}
SIM_EXPORT CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  SIM_ENTER(cuModuleGetFunction);
  if (!out || !module || !name)
    return CUDA_INVALID_VALUE;
  *out = new Function{name};
  return CUDA_OK;
}
// sim_spin(microseconds) takes time; sim_add(address, count) adds one to each of count 64-bit
// numbers; sim_meet(side, sides) ends when every side has launched as many of them, as a collective
// operation between processes does; the GPU memory service's hash is computed.
SIM_EXPORT CUresult cuLaunchKernel(CUfunction function,
                                   unsigned gx,
                                   unsigned,
                                   unsigned,
                                   unsigned,
                                   unsigned,
                                   unsigned,
                                   unsigned,
                                   CUstream stream,
                                   void** parameters,
                                   void**) {
  SIM_ENTER(cuLaunchKernel);
  SIM_NEED_CONTEXT();
  if (!function)
    return CUDA_INVALID_HANDLE;
  LOCKED();
  Node node;
  node.function = function;
  const std::string& name = static_cast<Function*>(function)->name;
  if ((name == "sim_spin" || name == "probe_spin") && parameters)
    node.duration_ns = *static_cast<uint64_t*>(parameters[0]) * 1000;
  if ((name == "sim_add" || name == "sim_meet" || name == "billow_hash_pieces") && parameters)
    node.words = {*static_cast<uint64_t*>(parameters[0]), *static_cast<uint64_t*>(parameters[1]),
                  gx};
  if ((name == "probe_fill" || name == "probe_check") && parameters) {
    node.words = {*static_cast<uint64_t*>(parameters[0]), *static_cast<uint64_t*>(parameters[1]),
                  gx, *static_cast<uint64_t*>(parameters[2]), 0};
    if (name == "probe_check")
      node.words[4] = *static_cast<uint64_t*>(parameters[3]);
  }
  return run_on(stream_of(stream), std::move(node));
}
SIM_EXPORT CUresult cuLaunchKernel_ptsz(CUfunction f,
                                        unsigned a,
                                        unsigned b,
                                        unsigned c,
                                        unsigned d,
                                        unsigned e,
                                        unsigned g,
                                        unsigned h,
                                        CUstream s,
                                        void** p,
                                        void** x) {
  SIM_ENTER(cuLaunchKernel_ptsz);
  return cuLaunchKernel(f, a, b, c, d, e, g, h, s, p, x);
}
SIM_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config,
                                     CUfunction f,
                                     void** p,
                                     void** x) {
  SIM_ENTER(cuLaunchKernelEx);
  if (!config)
    return CUDA_INVALID_VALUE;
  return cuLaunchKernel(f, config->grid[0], 1, 1, 1, 1, 1, 0, config->hStream, p, x);
}

// ---- capture and graphs
SIM_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int) {
  SIM_ENTER(cuStreamBeginCapture_v2);
  LOCKED();
  Stream* s = stream_of(stream);
  if (!s || !stream || s->capture)
    return s && s->capture ? CUDA_ILLEGAL_STATE : CUDA_CAPTURE_UNSUPPORTED;
  s->capture = new Graph;
  s->invalidated = false;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* out) {
  SIM_ENTER(cuStreamEndCapture);
  LOCKED();
  Stream* s = stream_of(stream);
  if (!s || !out)
    return CUDA_INVALID_VALUE;
  if (!s->capture)
    return CUDA_ILLEGAL_STATE;
  Graph* g = s->capture;
  s->capture = nullptr;
  if (s->invalidated) {
    delete g;
    *out = nullptr;
    return 901;
  }
  *out = g;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphCreate(CUgraph* out, unsigned) {
  SIM_ENTER(cuGraphCreate);
  if (!out)
    return CUDA_INVALID_VALUE;
  *out = new Graph;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphDestroy(CUgraph g) {
  SIM_ENTER(cuGraphDestroy);
  if (!g)
    return CUDA_INVALID_VALUE;
  delete static_cast<Graph*>(g);
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphAddMemAllocNode(
    void** node, CUgraph graph, const void*, size_t, CUmemAllocNodeParams* params) {
  SIM_ENTER(cuGraphAddMemAllocNode);
  if (!node || !graph || !params)
    return CUDA_INVALID_VALUE;
  Node n;
  n.memory = params->bytesize;
  n.device = params->poolProps.location.id;
  static_cast<Graph*>(graph)->nodes.push_back(n);
  params->dptr = address_of_new(params->bytesize);
  *node = graph;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphAddNode_v2(
    void** node, CUgraph graph, const void* d, const void*, size_t n, CUgraphNodeParams* params) {
  SIM_ENTER(cuGraphAddNode_v2);
  if (!node || !graph || !params)
    return CUDA_INVALID_VALUE;
  return params->type == GRAPH_NODE_MEM_ALLOC
             ? cuGraphAddMemAllocNode(node, graph, d, n, &params->u.alloc)
             : CUDA_OK;
}
SIM_EXPORT CUresult
cuGraphAddNode(void** node, CUgraph g, const void* d, size_t n, CUgraphNodeParams* p) {
  return cuGraphAddNode_v2(node, g, d, nullptr, n, p);
}
SIM_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* out,
                                                CUgraph graph,
                                                unsigned long long) {
  SIM_ENTER(cuGraphInstantiateWithFlags);
  LOCKED();
  if (!out || !graph)
    return CUDA_INVALID_VALUE;
  auto* exec = new GraphExec{static_cast<Graph*>(graph)->nodes};
  for (const Node& n : exec->nodes) {
    exec->memory += round_up(n.memory, 2u << 20);
    if (n.memory)
      exec->device = n.device;
  }
  if (exec->memory && !take(exec->device, exec->memory)) {
    delete exec;
    return CUDA_OUT_OF_MEMORY;
  }
  world().graph_reserved[exec->device] += exec->memory;
  *out = exec;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec* o, CUgraph g, void*, char*, size_t) {
  SIM_ENTER(cuGraphInstantiate_v2);
  return cuGraphInstantiateWithFlags(o, g, 0);
}
SIM_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* o, CUgraph g, void*) {
  SIM_ENTER(cuGraphInstantiateWithParams);
  return cuGraphInstantiateWithFlags(o, g, 0);
}
SIM_EXPORT CUresult cuGraphExecDestroy(CUgraphExec e) {
  SIM_ENTER(cuGraphExecDestroy);
  LOCKED();
  if (!e)
    return CUDA_INVALID_VALUE;
  auto* exec = static_cast<GraphExec*>(e);
  if (exec->memory) {
    give(exec->device, exec->memory);
    world().graph_reserved[exec->device] -= exec->memory;
  }
  delete exec;
  return CUDA_OK;
}
SIM_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  SIM_ENTER(cuGraphLaunch);
  LOCKED();
  Stream* s = stream_of(stream);
  if (!exec || !s)
    return CUDA_INVALID_VALUE;
  for (const Node& n : static_cast<GraphExec*>(exec)->nodes)
    run_on(s, n);
  return CUDA_OK;
}
