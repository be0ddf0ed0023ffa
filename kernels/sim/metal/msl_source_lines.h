// Lines of shaders for addresses of their code.
#pragma once
#include <string>

namespace lfmsl {

// with_source_lines puts "norm.metal:57" for each "code 0x…" of a message.
std::string with_source_lines(const std::string& message);

}  // namespace lfmsl
