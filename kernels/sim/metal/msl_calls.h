// Which functions of a shader come to barriers and collectives.
#pragma once
#include <set>

#include "msl_tokens.h"

namespace lfmsl {

// meeting_functions returns the positions of the definitions of functions, other than
// kernels, that reach a barrier or collective. They are inlined, so that the address of a
// call identifies its position in a kernel. All other functions are left to the compiler,
// which takes a fraction of the time.
std::set<size_t> meeting_functions(const Text&);

}  // namespace lfmsl
