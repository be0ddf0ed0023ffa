#include "msl_source_lines.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sstream>

#include "msl_process.h"

namespace lfmsl {

// lines runs addr2line for the calls inlined at an address, innermost first, and omits
// the shim and the wrappers.
static std::string lines(uintptr_t address) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(address), &info)) return "";
  char offset[32];
  snprintf(offset, sizeof offset, "0x%zx", (size_t)(address - (uintptr_t)info.dli_fbase));
  char log[] = "/tmp/lfmslXXXXXX";
  int fd = mkstemp(log);
  if (fd < 0) return "";
  int status = -1;
  for (const char* tool : {"addr2line", "llvm-addr2line-19", "llvm-addr2line"}) {
    if ((status = run_program({tool, "-i", "-e", info.dli_fname, offset}, log)) == 0) break;
  }
  std::string text = status == 0 ? read_file(log) : "", found;
  close(fd);
  unlink(log);
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.find("/shim/lf/") != std::string::npos || line.rfind("??", 0) == 0 || line.find("wrappers of kernels:") != std::string::npos) continue;
    line = line.substr(line.rfind('/') + 1);
    size_t extra = line.find(" (discriminator");
    found += (found.empty() ? "" : " of ") + line.substr(0, extra);
  }
  return found;
}

std::string with_source_lines(const std::string& message) {
  static const std::string mark = "code 0x";
  std::string s;
  size_t i = 0;
  for (size_t at; (at = message.find(mark, i)) != std::string::npos;) {
    char* end;
    uintptr_t address = strtoull(message.c_str() + at + 5, &end, 16);
    std::string line = lines(address);
    size_t next = (size_t)(end - message.c_str());
    s += message.substr(i, at - i) + (line.empty() ? message.substr(at, next - at) : line);
    i = next;
  }
  return s + message.substr(i);
}

}  // namespace lfmsl
