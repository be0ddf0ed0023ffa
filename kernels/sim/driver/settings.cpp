#include "settings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <mutex>

#include "../engine/counts.h"
#include "../engine/environment.h"

namespace lfsim {

namespace {

// Injection is one entry of LFSIM_FAIL: kind[:name][:n[+]].
struct Injection {
  std::string kind, name;
  uint64_t from = 1;
  bool onward = false;  // n+: this call and all after it
  uint64_t seen = 0;
};

std::mutex mu;
std::vector<Injection> injections;
char last_message[1024];

void read_injections() {
  const char* v = get("LFSIM_FAIL");
  if (!v) return;
  static const char* const kinds[] = {"alloc", "hostalloc", "register", "copy", "launch", "lost", "module", "graph", "init"};
  std::string rest = v;
  while (!rest.empty()) {
    size_t comma = rest.find(',');
    std::string entry = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    Injection in;
    size_t colon = entry.find(':');
    in.kind = entry.substr(0, colon);
    if (std::find(std::begin(kinds), std::end(kinds), in.kind) == std::end(kinds)) {
      bad("LFSIM_FAIL", v, "entries kind[:name][:n[+]], kinds alloc, hostalloc, register, copy, launch, lost, module, graph, init");
    }
    while (colon != std::string::npos) {
      size_t next = entry.find(':', colon + 1);
      std::string part = entry.substr(colon + 1, next == std::string::npos ? next : next - colon - 1);
      if (!part.empty() && part.find_first_not_of("0123456789+") == std::string::npos) {
        in.onward = part.back() == '+';
        in.from = strtoull(part.c_str(), nullptr, 10);
      } else {
        in.name = part;
      }
      colon = next;
    }
    injections.push_back(in);
  }
}

Settings read() {
  Settings s;
  s.no_device = flag("LFSIM_NO_DEVICE");
  s.leaks = flag("LFSIM_LEAKS");
  s.verbose = flag("LFSIM_VERBOSE");
  if (const char* v = get("LFSIM_KEEP")) s.keep = v;
  if (const char* v = get("LFSIM_COUNT")) {
    if (!counted()) bad("LFSIM_COUNT", v, "the library libcuda_count.so, which scripts/cuda_sim.sh count builds");
    s.count = v;
  }
  s.devices = (int)std::clamp<uint64_t>(number("LFSIM_DEVICES", 1), 0, 16);
  s.memory = number("LFSIM_MEM", s.memory);
  s.pinned = number("LFSIM_PINNED", s.pinned);
  s.read_only_register = !flag("LFSIM_NO_READ_ONLY_REGISTER");
  if (const char* v = get("LFSIM_CC")) {
    if (sscanf(v, "%d.%d", &s.major, &s.minor) != 2) {
      int n = atoi(v);
      if (n < 50 || n > 129) bad("LFSIM_CC", v, "a compute capability such as 8.0 or 90");
      s.major = n / 10, s.minor = n % 10;
    }
  }
  if (const char* v = get("LFSIM_STREAMS")) {
    if (strcmp(v, "lazy") && strcmp(v, "eager")) bad("LFSIM_STREAMS", v, "eager or lazy");
    s.lazy_streams = !strcmp(v, "lazy");
  }
  s.patience = std::chrono::milliseconds(number("LFSIM_PATIENCE", (uint64_t)s.patience.count()));
  read_options();
  read_injections();
  return s;
}

}  // namespace

const Settings& settings() {
  static const Settings s = read();
  return s;
}

bool injected(const std::string& kind, const std::string& name) {
  settings();
  std::lock_guard<std::mutex> lock(mu);
  bool fail = false;
  for (Injection& in : injections) {
    if (in.kind != kind || (!in.name.empty() && in.name != name)) continue;
    in.seen++;
    fail |= in.onward ? in.seen >= in.from : in.seen == in.from;
  }
  return fail;
}

void complain(const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fprintf(stderr, "lfsim: %s\n", text);
  std::lock_guard<std::mutex> lock(mu);
  memcpy(last_message, text, sizeof text);
}

// lfsim_last_message is for tests: the last thing that was complained of.
extern "C" __attribute__((visibility("default"))) const char* lfsim_last_message() { return last_message; }

}  // namespace lfsim
