// Names and descriptions of errors.
#include "abi.h"
#include "state.h"

using namespace lfsim;

namespace {

struct Name {
  int code;
  const char *name, *text;
};

const Name names[] = {
    {abi::Success, "CUDA_SUCCESS", "no error"},
    {abi::InvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {abi::OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {abi::NotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {abi::NoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {abi::InvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {abi::InvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {abi::InvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {abi::NoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {abi::PeerAccessUnsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {abi::FileNotFound, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {abi::InvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {abi::NotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {abi::NotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {abi::IllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {abi::LaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {abi::ContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {abi::HostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {abi::HostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
    {abi::IllegalInstruction, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {abi::MisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {abi::LaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {abi::NotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {abi::StreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {abi::StreamCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {abi::StreamCaptureMerge, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {abi::StreamCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {abi::StreamCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {abi::StreamCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {abi::StreamCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing blocking stream"},
    {abi::CapturedEvent, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {abi::StreamCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to terminate a thread-local capture sequence from another thread"},
    {abi::Unknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Name* find(int code) {
  for (const Name& n : names) {
    if (n.code == code) return &n;
  }
  return nullptr;
}

}  // namespace

LFSIM_API cuGetErrorName(int code, const char** name) {
  const Name* n = find(code);
  *name = n ? n->name : nullptr;
  return n ? abi::Success : abi::InvalidValue;
}

LFSIM_API cuGetErrorString(int code, const char** text) {
  const Name* n = find(code);
  *text = n ? n->text : nullptr;
  return n ? abi::Success : abi::InvalidValue;
}
