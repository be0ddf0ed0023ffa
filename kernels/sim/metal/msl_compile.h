// Shared objects of shaders: compiled once, kept on disk.
#pragma once
#include <string>
#include <vector>

namespace lfmsl {

struct Source {
  std::string text;
  std::vector<std::string> macros;   // NAME=VALUE
  std::vector<std::string> folders;  // of what it includes
};

// compile gives the path of the shared object that a source is compiled to. It throws
// Error with what the compiler says.
std::string compile(const Source&);

}  // namespace lfmsl
