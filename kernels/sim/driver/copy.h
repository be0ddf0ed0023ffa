// Conversion of API arguments to copies and fills, for streams and graphs.
#pragma once
#include "work.h"

namespace lfsim {

enum class Side { Host, Device, Either };

// Flow is the direction of a copy and the API function that requested it.
struct Flow {
  Side dst, src;
  bool async;
  void* stream = nullptr;
};

// check_memory refuses addresses on the wrong side of a copy.
abi::Result check_memory(Context* context, const void* p, size_t bytes, Side side, const char* what, bool* pageable);

// copy checks a copy and runs it: pageable memory is staged or waited for, as
// the driver does.
abi::Result copy(Context* context, std::shared_ptr<CopyWork> work, Flow flow);

abi::Result make_copy(Context* context, const abi::Memcpy3D& c, std::shared_ptr<CopyWork>* work, Flow* flow);
abi::Result make_fill(Context* context, const abi::MemsetNodeParams& m, std::shared_ptr<FillWork>* work);

}  // namespace lfsim
