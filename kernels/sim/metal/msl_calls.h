// Which functions of a shader come to barriers and collectives.
#pragma once
#include <set>

#include "msl_tokens.h"

namespace lfmsl {

// meeting_functions are the places of the definitions of functions, other than kernels,
// from which a barrier or collective is reached. Those are inlined, so that the address of
// its call tells where in a kernel it is; all others are left to the compiler, which takes
// a fraction of the time.
std::set<size_t> meeting_functions(const Text&);

}  // namespace lfmsl
