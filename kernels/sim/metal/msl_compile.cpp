#include "msl_compile.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "msl_process.h"
#include "msl_rewrite.h"

namespace lfmsl {

namespace {

// Hash is FNV-1a of two seeds: 128 bits, enough to tell apart what one folder holds.
class Hash {
 public:
  void add(const std::string& s) {
    for (unsigned char c : s) put(c);
    put(0xff);
    put((unsigned char)s.size());
  }
  std::string text() const {
    char t[33];
    snprintf(t, sizeof t, "%016llx%016llx", (unsigned long long)a_, (unsigned long long)b_);
    return t;
  }

 private:
  void put(unsigned char c) {
    a_ = (a_ ^ c) * 0x100000001b3ull;
    b_ = (b_ ^ c) * 0x00000100000001b3ull + (b_ >> 47);
  }
  uint64_t a_ = 0xcbf29ce484222325ull, b_ = 0x6c62272e07bb0142ull;
};

std::string variable(const char* name, const std::string& otherwise) {
  const char* v = getenv(name);
  return v && *v ? v : otherwise;
}

// compiler returns the name of a program in the search path, or a path.
std::string compiler() { return variable("LORAFUSE_MSL_CXX", "clang++-19"); }

// identity returns the path, size and modification time of a program.
std::string identity(const std::string& program) {
  std::string path = program;
  if (path.find('/') == std::string::npos) {
    std::string folders = variable("PATH", "/usr/bin:/bin") + ":";
    for (size_t i = 0, end; (end = folders.find(':', i)) != std::string::npos; i = end + 1) {
      path = folders.substr(i, end - i) + "/" + program;
      if (exists(path)) break;
    }
  }
  struct stat s;
  if (stat(path.c_str(), &s)) throw Error("shaders are compiled by " + program + ", which is not installed (Debian: clang-19; LORAFUSE_MSL_CXX names another)");
  return path + " " + std::to_string(s.st_size) + " " + std::to_string(s.st_mtime);
}

std::string shim() { return here() + "/../metal/shim"; }

// shim_text returns the text of all headers of the shim.
const std::string& shim_text() {
  static const std::string text = [] {
    std::string s;
    for (const char* name : {"abi", "types", "traits", "math", "integer", "simd", "matrix", "kernel", "metal"}) {
      std::string part = read_file(shim() + "/lf/" + name + ".h");
      if (part.empty()) throw Error("the shader compiler lacks " + shim() + "/lf/" + name + ".h");
      s += part;
    }
    return s + read_file(shim() + "/metal_stdlib");
  }();
  return text;
}

// The checks are the same as for CUDA kernels (../Makefile); the engine has their handlers.
// Functions of shaders may have barriers inside: without -fconvergent-functions their
// calls are copied into the branches around them, and one barrier becomes two.
std::vector<std::string> code_flags() {
  std::vector<std::string> flags = {"-O2", "-g1", "-gdwarf-4", "-Xclang", "-fexperimental-assignment-tracking=disabled", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-nostdlib++",
                                    "-ffp-contract=off", "-fno-math-errno", "-Xclang", "-fconvergent-functions", "-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none",
                                    "-fsanitize=alignment,bounds,shift,integer-divide-by-zero", "-ftrivial-auto-var-init=pattern"};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) flags.push_back("-march=x86-64-v3");
#endif
  return flags;
}

// Language flags of both passes. Metal's is C++14.
std::vector<std::string> language_flags() {
  return {"-x", "c++", "-std=c++14", "-nostdinc", "-nostdinc++", "-fsigned-char", "-fno-color-diagnostics", "-fno-caret-diagnostics", "-ferror-limit=20",
          "-Xclang", "-cl-single-precision-constant", "-D__LF_NO_SIMD=0", "-D__LF_NO_BFLOAT=0"};
}
const std::vector<std::string> warning_flags = {"-Wno-everything", "-Werror=c++20-extensions", "-Werror=vla-cxx-extension", "-Werror=return-type", "-Werror=unknown-attributes",
                                                "-Werror=address-of-temporary", "-Werror=implicit-function-declaration"};

bool starts(const std::string& s, const char* with) { return s.rfind(with, 0) == 0; }

bool has(const Source& s, const char* macro) { return std::find(s.macros.begin(), s.macros.end(), macro) != s.macros.end(); }

void append(std::vector<std::string>& to, const std::vector<std::string>& from) { to.insert(to.end(), from.begin(), from.end()); }

std::string version(const Source& s) {
  for (const std::string& m : s.macros) {
    if (starts(m, "__METAL_VERSION__=")) return m;
  }
  return "__METAL_VERSION__=310";
}

// run_compiler throws the compiler's output, without internal details.
void run_compiler(const std::vector<std::string>& words, const std::string& log) {
  int status = run_program(words, log);
  if (status == 0) return;
  std::string text = read_file(log);
  throw Error(text.empty() ? words[0] + " failed with status " + std::to_string(status) : text);
}

std::string preprocess(const Source& s, const Scratch& scratch) {
  write_file(scratch.file("source.metal"), (starts(s.text, "#line") ? "" : "#line 1 \"program_source\"\n") + s.text);
  std::vector<std::string> words = {compiler()};
  append(words, language_flags());
  append(words, {"-E", "-w", "-D__METAL__=1", "-D__METAL_MACOS__=1", "-D" + version(s)});
  for (const std::string& m : s.macros) {
    if (m.find('\n') != std::string::npos) throw Error("the macro " + m + " is of more than one line");
    words.push_back("-D" + m);
  }
  words.push_back("-I" + shim());
  for (const std::string& f : s.folders) words.push_back("-I" + f);
  append(words, {"-o", scratch.file("preprocessed"), scratch.file("source.metal")});
  run_compiler(words, scratch.file("log"));
  return read_file(scratch.file("preprocessed"));
}

void generate(const Source& s, const std::string& code, const Scratch& scratch) {
  write_file(scratch.file("code.cpp"), code);
  std::vector<std::string> words = {compiler()};
  append(words, language_flags());
  append(words, code_flags());
  append(words, warning_flags);
  words.push_back("-D" + version(s));
  if (has(s, "__FAST_MATH__=1")) append(words, {"-ffast-math", "-ffp-contract=off"});
  for (const std::string& m : s.macros) {
    if (starts(m, "__LF_")) words.push_back("-D" + m);
  }
  append(words, {"-isystem", shim(), "-o", scratch.file("code.so"), scratch.file("code.cpp"), "-lm"});
  run_compiler(words, scratch.file("log"));
}

}  // namespace

std::string compile(const Source& s) {
  std::string cache = variable("LORAFUSE_MSL_CACHE", here() + "/msl");
  make_folders(cache);
  Hash h;
  h.add(identity(compiler()));
  h.add(shim_text());
  for (const auto& flags : {language_flags(), code_flags(), warning_flags, s.macros}) {
    for (const std::string& f : flags) h.add(f);
    h.add("");
  }
  h.add(s.text);
  if (!s.folders.empty()) {  // what is included may have changed
    Scratch scratch(cache);
    h.add(preprocess(s, scratch));
  }
  std::string path = cache + "/" + h.text() + ".so";
  if (exists(path)) return path;
  Lock lock(cache + "/" + h.text() + ".lock");
  if (exists(path)) return path;
  Scratch scratch(cache);
  generate(s, rewrite(preprocess(s, scratch)), scratch);
  if (rename(scratch.file("code.so").c_str(), path.c_str())) throw Error("the shader compiler cannot write " + path);
  unlink((cache + "/" + h.text() + ".lock").c_str());
  return path;
}

}  // namespace lfmsl
