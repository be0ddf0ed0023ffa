// Command lfmsl compiles shaders and lists their kernels, or says what is wrong with them.
//
//   lfmsl FILE.metal… [-DNAME=VALUE…] [-IFOLDER…]
#include <stdio.h>
#include <string.h>

#include <string>
#include <vector>

#include "../msl_compile.h"
#include "../msl_library.h"
#include "../msl_process.h"

int main(int argc, char** argv) {
  lfmsl::Source common;
  std::vector<std::string> files;
  for (int i = 1; i < argc; i++) {
    std::string word = argv[i];
    if (word.rfind("-D", 0) == 0) {
      common.macros.push_back(word.substr(2));
    } else if (word.rfind("-I", 0) == 0) {
      common.folders.push_back(word.substr(2));
    } else {
      files.push_back(word);
    }
  }
  if (files.empty()) {
    fprintf(stderr, "usage: lfmsl FILE.metal… [-DNAME=VALUE…] [-IFOLDER…]\n");
    return 2;
  }
  int failed = 0;
  for (const std::string& file : files) {
    if (!lfmsl::exists(file)) {
      fprintf(stderr, "lfmsl: there is no %s\n", file.c_str());
      failed = 1;
      continue;
    }
    lfmsl::Source s = common;
    size_t slash = file.rfind('/');
    s.folders.insert(s.folders.begin(), slash == std::string::npos ? "." : file.substr(0, slash));
    s.text = "#line 1 \"" + file + "\"\n" + lfmsl::read_file(file);
    try {
      lf_msl m(lfmsl::compile(s));
      for (int k = 0; k < lf_msl_count(&m); k++) {
        lf_msl_info info = lf_msl_about(&m, k);
        int buffers = __builtin_popcount(info.buffers);
        printf("%s: %s: %d buffers, %zu bytes of threadgroup memory, %u threads at most\n", file.c_str(), lf_msl_name(&m, k), buffers, info.shared, info.threads ? info.threads : 1024);
      }
    } catch (const std::exception& e) {
      fprintf(stderr, "%s%s", e.what(), strchr(e.what(), '\n') ? "" : "\n");
      failed = 1;
    }
  }
  return failed;
}
