/*
 * The cuda.h of the toolkit, with declarations that gorgonia.org/cu v0.9.6 expects.
 *
 * CUDA 13 has given five functions new parameters, under the names that the
 * headers of CUDA 12 gave to the old ones. Drivers still export the old
 * functions, so only their declarations are missing. This folder goes before
 * that of the toolkit on the include path.
 */
#ifndef LORAFUSE_CUDA_COMPAT_H
#define LORAFUSE_CUDA_COMPAT_H
#include_next <cuda.h>
#if CUDA_VERSION >= 13000
#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuMemAdvise(CUdeviceptr p, size_t bytes, CUmem_advise advice, CUdevice device);
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr p, size_t bytes, CUdevice device, CUstream stream);
CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n);
CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n);
#endif
#endif
