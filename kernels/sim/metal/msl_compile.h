// Shared objects of shaders: compiled once, kept on disk.
#pragma once
#include <string>
#include <vector>

namespace lfmsl {

struct Source {
  std::string text;
  std::vector<std::string> macros;   // NAME=VALUE
  std::vector<std::string> folders;  // of its includes
};

// compile returns the path of the shared object that a source is compiled to. It throws
// Error with the compiler's message.
std::string compile(const Source&);

}  // namespace lfmsl
