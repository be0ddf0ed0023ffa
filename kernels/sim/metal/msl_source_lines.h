// Lines of shaders for addresses of their code.
#pragma once
#include <string>

namespace lfmsl {

// with_source_lines replaces each "code 0x…" in a message by a line such as "norm.metal:57".
std::string with_source_lines(const std::string& message);

}  // namespace lfmsl
