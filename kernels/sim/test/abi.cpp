// Compiled against NVIDIA's cuda.h, if available: our copies of its
// structures and numbers must be the same. There is nothing to run.
#include <cuda.h>
#include <stddef.h>

#include "../driver/abi.h"

namespace abi = lfsim::abi;

#define SAME(theirs, ours) static_assert((long long)(theirs) == (long long)(ours), #theirs)

SAME(sizeof(CUlaunchConfig), sizeof(abi::LaunchConfig));
SAME(offsetof(CUlaunchConfig, hStream), offsetof(abi::LaunchConfig, stream));
SAME(offsetof(CUlaunchConfig, numAttrs), offsetof(abi::LaunchConfig, nattributes));
SAME(sizeof(CUlaunchAttribute), sizeof(abi::LaunchAttribute));
SAME(sizeof(CUDA_KERNEL_NODE_PARAMS_v2), sizeof(abi::KernelNodeParams));
SAME(offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kernelParams), offsetof(abi::KernelNodeParams, params));
SAME(sizeof(CUDA_MEMSET_NODE_PARAMS), sizeof(abi::MemsetNodeParams));
SAME(offsetof(CUDA_MEMSET_NODE_PARAMS, height), offsetof(abi::MemsetNodeParams, height));
SAME(sizeof(CUDA_HOST_NODE_PARAMS), sizeof(abi::HostNodeParams));
SAME(sizeof(CUDA_MEMCPY2D), sizeof(abi::Memcpy2D));
SAME(offsetof(CUDA_MEMCPY2D, dstPitch), offsetof(abi::Memcpy2D, dst_pitch));
SAME(sizeof(CUDA_MEMCPY3D), sizeof(abi::Memcpy3D));
SAME(offsetof(CUDA_MEMCPY3D, dstHeight), offsetof(abi::Memcpy3D, dst_height));
SAME(sizeof(CUuuid), sizeof(abi::Uuid));
SAME(CUDA_ERROR_INVALID_VALUE, abi::InvalidValue);
SAME(CUDA_ERROR_OUT_OF_MEMORY, abi::OutOfMemory);
SAME(CUDA_ERROR_NOT_INITIALIZED, abi::NotInitialized);
SAME(CUDA_ERROR_NO_DEVICE, abi::NoDevice);
SAME(CUDA_ERROR_INVALID_DEVICE, abi::InvalidDevice);
SAME(CUDA_ERROR_INVALID_IMAGE, abi::InvalidImage);
SAME(CUDA_ERROR_INVALID_CONTEXT, abi::InvalidContext);
SAME(CUDA_ERROR_NO_BINARY_FOR_GPU, abi::NoBinaryForGpu);
SAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, abi::PeerAccessUnsupported);
SAME(CUDA_ERROR_FILE_NOT_FOUND, abi::FileNotFound);
SAME(CUDA_ERROR_INVALID_HANDLE, abi::InvalidHandle);
SAME(CUDA_ERROR_NOT_FOUND, abi::NotFound);
SAME(CUDA_ERROR_NOT_READY, abi::NotReady);
SAME(CUDA_ERROR_ILLEGAL_ADDRESS, abi::IllegalAddress);
SAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, abi::LaunchOutOfResources);
SAME(CUDA_ERROR_CONTEXT_IS_DESTROYED, abi::ContextIsDestroyed);
SAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, abi::HostMemoryAlreadyRegistered);
SAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, abi::HostMemoryNotRegistered);
SAME(CUDA_ERROR_ILLEGAL_INSTRUCTION, abi::IllegalInstruction);
SAME(CUDA_ERROR_MISALIGNED_ADDRESS, abi::MisalignedAddress);
SAME(CUDA_ERROR_LAUNCH_FAILED, abi::LaunchFailed);
SAME(CUDA_ERROR_NOT_SUPPORTED, abi::NotSupported);
SAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, abi::StreamCaptureUnsupported);
SAME(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, abi::StreamCaptureWrongThread);
SAME(CUDA_ERROR_UNKNOWN, abi::Unknown);
SAME(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, abi::MaxDynamicSharedSizeBytes);
SAME(CU_MEMHOSTREGISTER_READ_ONLY, abi::HostRegisterReadOnly);
SAME(CU_GRAPH_NODE_TYPE_EVENT_RECORD, abi::NodeEventRecord);
SAME(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 113);
SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97);
